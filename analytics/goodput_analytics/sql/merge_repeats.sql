-- Purpose: equal step numbers in a row are one step.
-- Inputs:  gp_rank_steps, gp_segments
-- Grain:   one row per step of a rank's life, of ranks that told a step in pieces.
-- Columns: as gp_rank_steps
-- Algorithm: the pieces of a step are joined: from the first start to the last end, data_ns and busy_ns added up.
--            A step is applied when any of its pieces was.
CREATE OR REPLACE TEMP TABLE gp_merged_steps AS
SELECT
    r.source_id, min(r.seq) AS seq, max(r.ts_ns) AS ts_ns, r.step, min(r.start_ns) AS start_ns, max(r.end_ns) AS end_ns,
    sum(r.data_ns)::BIGINT AS data_ns, sum(r.busy_ns)::BIGINT AS busy_ns,
    max(r.c) AS c, bool_or(r.applied) AS applied,
    arg_min(r.gap_ns, r.seq) AS gap_ns, bool_or(r.back) AS back, false AS again, bool_or(r.backwards) AS backwards
FROM gp_rank_steps r
JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
WHERE r.source_id IN (SELECT source_id FROM gp_rank_steps WHERE again)
GROUP BY r.source_id, g.part, g.life, r.step
