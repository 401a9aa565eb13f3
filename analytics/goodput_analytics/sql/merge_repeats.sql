-- Purpose: equal step numbers in a row are one step.
-- Inputs:  gp_rank_steps, gp_segments
-- Grain:   as gp_rank_steps, one row per step of a rank's life; only run where a number was repeated.
-- Algorithm: the pieces of a step are joined: from the first start to the last end, data_ns and busy_ns added up.
--            A step is applied when any of its pieces was.
CREATE OR REPLACE TEMP TABLE gp_rank_steps AS
WITH repeating AS (SELECT DISTINCT source_id FROM gp_rank_steps WHERE again)
SELECT * FROM gp_rank_steps WHERE source_id NOT IN (SELECT source_id FROM repeating)
UNION ALL
SELECT
    r.source_id, min(r.seq) AS seq, r.step, min(r.start_ns) AS start_ns, max(r.end_ns) AS end_ns,
    arg_min(r.gap_ns, r.seq) AS gap_ns, sum(r.data_ns)::BIGINT AS data_ns, sum(r.busy_ns)::BIGINT AS busy_ns,
    max(r.c) AS c, bool_or(r.applied) AS applied, bool_or(r.back) AS back, false AS again
FROM gp_rank_steps r
JOIN repeating USING (source_id)
JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
GROUP BY r.source_id, g.part, g.life, r.step
