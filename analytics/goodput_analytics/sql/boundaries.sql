-- Purpose: where a rank's step numbers begin anew inside an attempt (a rollback).
-- Inputs:  gp_members, gp_rank_steps, gp_step_blocks, ev_resume; $run_id
-- Grain:   one row per (source_id, seq): the event with which a rank's new life begins.
-- Columns: attempt, part; told_ns  when the event was told; last_end_ns, next_end_ns  the ends of the rank's steps
--          on either side, own clock (next_end_ns NULL: no step yet)
-- Algorithm: a step number that falls back, or a resume after a step; both between the same two steps are one.
CREATE OR REPLACE TEMP TABLE gp_boundaries AS
WITH candidates AS (
    SELECT m.attempt, m.source_id, m.part, m.from_seq, r.seq, r.start_ns AS told_ns
    FROM gp_rank_steps r
    JOIN gp_members m ON m.source_id = r.source_id AND r.seq BETWEEN m.from_seq AND m.to_seq
    WHERE r.back AND r.source_id IN (SELECT source_id FROM gp_step_blocks WHERE back)
    UNION ALL
    SELECT m.attempt, m.source_id, m.part, m.from_seq, e.seq, e.ts_ns
    FROM ev_resume e JOIN gp_members m ON m.source_id = e.source_id AND e.seq BETWEEN m.from_seq AND m.to_seq
    WHERE e.run_id = $run_id
),
steps AS (
    SELECT r.source_id, r.seq, r.end_ns, lead(r.end_ns) OVER (PARTITION BY r.source_id ORDER BY r.seq) AS next_end_ns
    FROM gp_rank_steps r
    WHERE r.source_id IN (
        SELECT c.source_id FROM candidates c JOIN (
            SELECT source_id, min(first_seq) AS first_seq FROM gp_step_blocks GROUP BY source_id
        ) f ON f.source_id = c.source_id AND c.seq > f.first_seq)
),
placed AS (
    SELECT c.*, s.seq AS last_seq, s.end_ns AS last_end_ns, s.next_end_ns
    FROM candidates c ASOF JOIN steps s ON s.source_id = c.source_id AND c.seq > s.seq
)
SELECT
    attempt, source_id, part, min(seq) AS seq, min(told_ns) AS told_ns,
    any_value(last_end_ns) AS last_end_ns, any_value(next_end_ns) AS next_end_ns
FROM placed
WHERE last_seq >= from_seq
GROUP BY attempt, source_id, part, last_seq
