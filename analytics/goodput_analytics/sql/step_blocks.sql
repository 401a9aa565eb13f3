-- Purpose: the rows of ranks reduced along each process, for all that asks no single step.
-- Inputs:  step_blocks, closed_steps, gp_rank_steps, gp_parts; $run_id
-- Grain:   one row per (source_id, part, block); block = step // 1000; part NULL: of no process that has a start.
-- Columns: steps, first_seq, last_seq   how many events, and the lowest and highest seq; top_step  the highest number
--          first_start_ns, first_end_ns, last_end_ns, last_told_ns  own clock
--          backwards                    events whose end is before their start
--          back, again                  there is one whose number fell behind, or repeats, the one before it
-- Algorithm: sources are reduced as they land; only what lies in several parts of one is looked at event by event (of the
--            first part what is closed is not: its blocks are of that part alone).
CREATE OR REPLACE TEMP TABLE gp_step_blocks AS
WITH divided AS (SELECT source_id FROM gp_parts GROUP BY source_id HAVING count(*) > 1)
SELECT b.source_id, p.part, b.* EXCLUDE (run_id, source_id)
FROM step_blocks b LEFT JOIN gp_parts p ON p.source_id = b.source_id
WHERE b.run_id = $run_id AND b.source_id NOT IN (SELECT source_id FROM divided)
UNION ALL
SELECT p.source_id, p.part, r.step // 1000,
    count(*), min(r.seq), max(r.seq), max(r.step), min(r.start_ns), min(r.end_ns), max(r.end_ns), max(r.ts_ns),
    count_if(r.backwards), bool_or(r.back), bool_or(r.again)
FROM (
    SELECT r.*, r.step < coalesce(c.below, 0) AS closed
    FROM gp_rank_steps r LEFT JOIN closed_steps c ON c.source_id = r.source_id
) r
JOIN gp_parts p ON p.source_id = r.source_id AND r.seq BETWEEN p.from_seq AND p.to_seq
SEMI JOIN divided d ON d.source_id = p.source_id
WHERE NOT (r.closed AND p.from_seq = -1)
GROUP BY p.source_id, p.part, r.step // 1000
UNION ALL
SELECT b.source_id, p.part, b.* EXCLUDE (run_id, source_id)
FROM step_blocks b
JOIN closed_steps c ON c.source_id = b.source_id AND b.block * 1000 < c.below
JOIN gp_parts p ON p.source_id = b.source_id AND p.from_seq = -1
SEMI JOIN divided d ON d.source_id = b.source_id
WHERE b.run_id = $run_id
