-- Purpose: the interruptions: when each came, and when work went on.
-- Inputs:  gp_attempts, gp_end_causes, gp_tails, gp_lives, gp_last_lives, gp_fates, gp_window_times
-- Grain:   one row per attempt that aborted, per rollback inside one, and per finished attempt that a later one resumed
--          below.
-- Columns: attempt, life  the life that ended; inside  a rollback inside an attempt
--          cause; last_progress_ns, abort_ns; detection_ns; recovered_ns  the next first step's start
CREATE OR REPLACE TEMP TABLE gp_ends AS
WITH caused AS (
    SELECT a.attempt, a.outcome, a.end_ns, a.next_ns, c.end_cause, c.silent, c.mark_ns, coalesce(l.life, 0) AS life,
        n.first_step_ns AS next_first_ns
    FROM gp_attempts a
    JOIN gp_end_causes c USING (attempt)
    LEFT JOIN gp_last_lives l USING (attempt)
    LEFT JOIN gp_tails n ON n.attempt = a.attempt + 1
),
life_ends AS (
    SELECT attempt, life, max(end_ns) AS end_ns, min(start_ns) AS start_ns FROM gp_window_times GROUP BY attempt, life
),
rollbacks AS (
    SELECT e.attempt, e.life, e.end_ns, n.start_ns AS recovered_ns
    FROM life_ends e
    JOIN gp_lives l ON l.attempt = e.attempt AND l.life > e.life
    LEFT JOIN life_ends n ON n.attempt = l.attempt AND n.life = l.life
    QUALIFY row_number() OVER (PARTITION BY e.attempt, e.life ORDER BY l.life) = 1
),
resumed_below AS (
    SELECT c.attempt, c.life, max(e.end_ns) AS end_ns, any_value(c.next_first_ns) AS recovered_ns
    FROM caused c
    JOIN gp_fates f ON f.charged_attempt = c.attempt AND f.charged_life = c.life AND NOT f.kept
    JOIN life_ends e ON e.attempt = c.attempt
    WHERE c.outcome = 'finished' AND c.next_ns IS NOT NULL AND f.to_step < 4611686018427387904
    GROUP BY c.attempt, c.life
)
SELECT attempt, life, false AS inside, end_cause AS cause, mark_ns AS last_progress_ns, end_ns AS abort_ns,
    CASE WHEN silent THEN next_ns ELSE end_ns END - mark_ns AS detection_ns, next_first_ns AS recovered_ns
FROM caused WHERE outcome = 'aborted'
UNION ALL
SELECT attempt, life, true, 'rollback', end_ns, end_ns, 0, recovered_ns FROM rollbacks
UNION ALL
SELECT attempt, life, false, 'rollback', end_ns, end_ns, 0, recovered_ns FROM resumed_below
