-- Purpose: steps that can be kept reduced from now on, because their blocks seem to be complete.
-- Inputs:  gp_members, gp_segments, gp_limits, gp_step_blocks, gp_attempts, gp_spans, gp_windows, closed_steps, closed_early;
--          $run_id
-- Grain:   as gp_closing (see closing.sql).
-- Algorithm: whole blocks of 1,000 step numbers that every process has left behind (those that were heard from in the last
--            ten minutes of the attempt), or all of an attempt that ended; none from the beginning of a span on that has not
--            ended. Attempts as in closing.sql. Nothing depends on this being right: see early.sql.
CREATE OR REPLACE TEMP TABLE gp_closing AS
WITH unfit AS (
    SELECT attempt FROM gp_segments
    WHERE NOT whole OR life > 0 OR alone OR from_seq <> -1 OR to_seq <> 9223372036854775807
    UNION SELECT attempt FROM gp_limits WHERE late
    UNION SELECT m.attempt FROM gp_members m JOIN gp_step_blocks b ON b.source_id = m.source_id WHERE b.back OR b.again
),
reached AS (
    SELECT m.attempt, m.source_id, max(b.block) AS block, max(b.last_told_ns) AS told_ns
    FROM gp_step_blocks b JOIN gp_members m ON m.source_id = b.source_id
    WHERE m.attempt NOT IN (SELECT attempt FROM unfit)
    GROUP BY m.attempt, m.source_id
),
latest AS (SELECT attempt, max(told_ns) AS told_ns FROM reached GROUP BY attempt),
complete AS (
    SELECT r.attempt, CASE WHEN any_value(a.outcome) <> 'live' THEN max(r.block) + 1
        ELSE min(r.block) FILTER (r.told_ns >= l.told_ns - 600000000000) END AS block
    FROM reached r JOIN latest l ON l.attempt = r.attempt JOIN gp_attempts a ON a.attempt = r.attempt
    GROUP BY r.attempt
),
unended AS (SELECT attempt, min(begin_ns) AS begin_ns FROM gp_spans WHERE NOT closed GROUP BY attempt),
held_back AS (
    SELECT w.attempt, min(w.step) // 1000 AS block
    FROM gp_windows w JOIN unended u ON u.attempt = w.attempt AND w.last_end_ns >= u.begin_ns
    GROUP BY w.attempt
),
anchors AS (
    SELECT m.attempt, coalesce(min(e.anchor_id), min(m.source_id) FILTER (c.source_id IS NOT NULL), min(m.source_id)) AS anchor
    FROM gp_members m
    LEFT JOIN closed_steps c ON c.source_id = m.source_id
    LEFT JOIN (SELECT * FROM closed_early WHERE run_id = $run_id) e ON e.source_id = m.source_id
    WHERE m.source_id IN (SELECT source_id FROM gp_step_blocks)
    GROUP BY m.attempt
),
begun AS (SELECT attempt, max(closed_below) AS from_step FROM gp_segments GROUP BY attempt)
SELECT c.attempt, a.anchor, b.from_step, 1000 * least(c.block, h.block) AS below
FROM complete c
JOIN anchors a ON a.attempt = c.attempt
JOIN begun b ON b.attempt = c.attempt
LEFT JOIN held_back h ON h.attempt = c.attempt
WHERE 1000 * least(c.block, h.block) > b.from_step
