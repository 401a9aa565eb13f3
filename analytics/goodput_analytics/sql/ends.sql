-- Purpose: the interruptions: when each came, and when work went on.
-- Inputs:  gp_attempts, gp_end_causes, gp_tails, gp_lives, gp_last_lives, gp_bases, gp_window_parts
-- Grain:   one row per attempt that aborted, per rollback inside one, and per finished attempt if what went on next did
--          so from below its last step.
-- Columns: attempt, life  the life that ended; inside  a rollback inside an attempt
--          cause; last_progress_ns, abort_ns; detection_ns; recovered_ns  the next first step's start
--          until_ns  how far its restart goes: to that step, else to the end of what came next; NULL if nothing did
CREATE OR REPLACE TEMP TABLE gp_ends AS
WITH caused AS (
    SELECT a.attempt, a.outcome, a.end_ns, a.next_ns, c.end_cause, c.silent, c.mark_ns, coalesce(l.life, 0) AS life,
        n.first_step_ns AS next_first_ns, coalesce(n.first_step_ns, b.end_ns) AS until_ns
    FROM gp_attempts a
    JOIN gp_end_causes c USING (attempt)
    LEFT JOIN gp_last_lives l USING (attempt)
    LEFT JOIN gp_attempts b ON b.attempt = a.attempt + 1
    LEFT JOIN gp_tails n ON n.attempt = a.attempt + 1
),
life_ends AS (
    SELECT attempt, life, max(end_ns) AS end_ns, min(start_ns) AS start_ns FROM gp_window_parts GROUP BY attempt, life
),
rollbacks AS (
    SELECT e.attempt, e.life, e.end_ns, n.start_ns AS recovered_ns, coalesce(n.start_ns, a.end_ns) AS until_ns
    FROM life_ends e
    JOIN gp_attempts a ON a.attempt = e.attempt
    JOIN gp_lives l ON l.attempt = e.attempt AND l.life > e.life
    LEFT JOIN life_ends n ON n.attempt = l.attempt AND n.life = l.life
    QUALIFY row_number() OVER (PARTITION BY e.attempt, e.life ORDER BY l.life) = 1
),
resumed_next AS (
    SELECT c.attempt, b.base
    FROM caused c JOIN gp_bases b ON b.attempt > c.attempt
    WHERE c.outcome = 'finished'
    QUALIFY row_number() OVER (PARTITION BY c.attempt ORDER BY b.attempt, b.life) = 1
),
resumed_below AS (
    SELECT c.attempt, c.life, e.end_ns, c.next_first_ns AS recovered_ns, c.until_ns
    FROM caused c
    JOIN resumed_next n ON n.attempt = c.attempt
    JOIN gp_last_lives l ON l.attempt = c.attempt AND n.base < l.step
    JOIN (SELECT attempt, max(end_ns) AS end_ns FROM life_ends GROUP BY attempt) e ON e.attempt = c.attempt
)
SELECT attempt, life, false AS inside, end_cause AS cause, mark_ns AS last_progress_ns, end_ns AS abort_ns,
    CASE WHEN silent THEN next_ns ELSE end_ns END - mark_ns AS detection_ns, next_first_ns AS recovered_ns,
    until_ns
FROM caused WHERE outcome = 'aborted'
UNION ALL
SELECT attempt, life, true, 'rollback', end_ns, end_ns, 0, recovered_ns, until_ns FROM rollbacks
UNION ALL
SELECT attempt, life, false, 'rollback', end_ns, end_ns, 0, recovered_ns, until_ns FROM resumed_below
