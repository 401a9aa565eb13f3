-- Purpose: what went into the steps to be kept, counted, so that it is seen when something comes after.
-- Inputs:  gp_closing, gp_members, gp_step_blocks, gp_windows, gp_marks
-- Grain:   one row per process of such an attempt.
-- Columns: as closed_early, without the run's key
-- Algorithm: a process's other events count up to the start of its first step that is not kept; where there is none, all.
CREATE OR REPLACE TEMP TABLE gp_closing_marks AS
WITH members AS (
    SELECT m.source_id, c.attempt, c.anchor, c.below FROM gp_members m JOIN gp_closing c ON c.attempt = m.attempt
),
blocks AS (
    SELECT m.source_id, coalesce(sum(b.steps) FILTER (b.block * 1000 < m.below), 0)::BIGINT AS steps,
        max(b.last_seq) FILTER (b.block * 1000 < m.below) AS last_seq,
        coalesce(min(b.first_start_ns) FILTER (b.block * 1000 >= m.below), 9223372036854775807) AS horizon_ns
    FROM members m LEFT JOIN gp_step_blocks b ON b.source_id = m.source_id
    GROUP BY m.source_id
),
marks AS (
    SELECT b.source_id, count(*) AS marks
    FROM blocks b JOIN gp_marks o ON o.source_id = b.source_id AND o.ts_ns <= b.horizon_ns
    GROUP BY b.source_id
),
kept AS (
    SELECT w.attempt, count(*) AS kept
    FROM gp_windows w JOIN gp_closing c ON c.attempt = w.attempt AND w.step < c.below
    GROUP BY w.attempt
)
SELECT m.source_id, m.anchor AS anchor_id, m.below, b.steps, b.last_seq, b.horizon_ns, coalesce(k.marks, 0) AS marks, n.kept
FROM members m
JOIN blocks b ON b.source_id = m.source_id
JOIN kept n ON n.attempt = m.attempt
LEFT JOIN marks k ON k.source_id = m.source_id
