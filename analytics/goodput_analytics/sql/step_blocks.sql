-- Purpose: the rows of ranks reduced along each process, for all that asks no single step.
-- Inputs:  gp_rank_steps, gp_parts
-- Grain:   one row per (source_id, part, block); block = step // 1000; part NULL: of no process that has a start.
-- Columns: steps, first_seq, last_seq   how many events, and the lowest and highest seq; top_step  the highest number
--          first_start_ns, first_end_ns, last_end_ns, last_told_ns  own clock
--          backwards                    events whose end is before their start
--          back, again                  there is one whose number fell behind, or repeats, the one before it
-- Algorithm: only what lies in several parts of one process is looked at event by event to tell which.
CREATE OR REPLACE TEMP TABLE gp_step_blocks AS
WITH divided AS (SELECT source_id FROM gp_parts GROUP BY source_id HAVING count(*) > 1),
whole AS (
    SELECT r.source_id, r.step // 1000 AS block,
        count(*) AS steps, min(r.seq) AS first_seq, max(r.seq) AS last_seq, max(r.step) AS top_step,
        min(r.start_ns) AS first_start_ns, min(r.end_ns) AS first_end_ns, max(r.end_ns) AS last_end_ns,
        max(r.ts_ns) AS last_told_ns, count_if(r.backwards) AS backwards, bool_or(r.back) AS back, bool_or(r.again) AS again
    FROM gp_rank_steps r ANTI JOIN divided d ON d.source_id = r.source_id
    GROUP BY r.source_id, r.step // 1000
)
SELECT w.source_id, p.part, w.* EXCLUDE (source_id) FROM whole w LEFT JOIN gp_parts p ON p.source_id = w.source_id
UNION ALL
SELECT p.source_id, p.part, r.step // 1000,
    count(*), min(r.seq), max(r.seq), max(r.step), min(r.start_ns), min(r.end_ns), max(r.end_ns), max(r.ts_ns),
    count_if(r.backwards), bool_or(r.back), bool_or(r.again)
FROM gp_rank_steps r
JOIN gp_parts p ON p.source_id = r.source_id AND r.seq BETWEEN p.from_seq AND p.to_seq
SEMI JOIN divided d ON d.source_id = p.source_id
GROUP BY p.source_id, p.part, r.step // 1000
