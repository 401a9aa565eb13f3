-- Purpose: the time that declared spans take after an attempt's first step began.
-- Inputs:  gp_window_covers, gp_covers, gp_tails, gp_window_parts, gp_last_lives, gp_fates, gp_attempts
-- Grain:   one row per entry: exclusive intervals.
-- Columns: attempt, life, step; category, phase; start_ns, end_ns; charged_…; before_rollback  the time belongs to what
--          follows a rollback, before its first step
-- Algorithm: an evaluation whose step was thrown away is rework; a span whose category is productive shares the fate of
--            the window that it lies in, in proportion; in the tail of an aborted attempt that is the unfinished step.
CREATE OR REPLACE TEMP TABLE gp_span_entries AS
WITH placed AS (
    SELECT v.attempt, w.life, v.start_ns, v.end_ns, v.name, v.category, v.step, v.restart,
        CASE WHEN w.idx > 0 THEN lag_step.step END AS step_before, w.step AS window_step, w.c, false AS tail,
        w.new_life AND v.start_ns < w.start_ns AS before_rollback
    FROM gp_window_covers v
    JOIN gp_window_parts w ON w.attempt = v.attempt AND w.idx = v.idx
    LEFT JOIN gp_window_parts lag_step ON lag_step.attempt = v.attempt AND lag_step.idx = v.idx - 1
    UNION ALL
    SELECT t.attempt, l.life, greatest(c.start_ns, t.steps_end_ns), least(c.end_ns, t.declared_ns), c.name, c.category,
        c.step, c.restart, l.step, l.step, 1, true, false
    FROM gp_tails t
    JOIN gp_covers c ON c.attempt = t.attempt AND c.end_ns > t.steps_end_ns AND c.start_ns < t.declared_ns
    JOIN gp_last_lives l ON l.attempt = t.attempt
),
evaluated AS (
    SELECT p.*, f.charged_attempt, f.charged_life, f.attempt IS NOT NULL AS thrown
    FROM placed p LEFT JOIN gp_fates f ON p.category = 'evaluation' AND p.name = 'evaluation' AND NOT f.kept
        AND f.attempt = p.attempt AND f.life = p.life AND coalesce(p.step, p.step_before) > f.after_step
        AND coalesce(p.step, p.step_before) <= f.to_step
),
kept_shares AS (
    SELECT p.attempt, p.start_ns, sum(least(f.to_step, p.window_step) - greatest(f.after_step, p.window_step - p.c)) AS kept
    FROM placed p JOIN gp_fates f ON f.kept AND f.attempt = p.attempt AND f.life = p.life
        AND f.after_step < p.window_step AND f.to_step > p.window_step - p.c
    WHERE p.category = 'productive' AND NOT p.tail
    GROUP BY p.attempt, p.start_ns
),
last_thrown AS (
    SELECT p.attempt, p.start_ns, any_value(f.charged_attempt) AS charged_attempt, any_value(f.charged_life) AS charged_life
    FROM placed p JOIN gp_fates f ON NOT f.kept AND f.attempt = p.attempt AND f.life = p.life
        AND f.after_step < p.window_step AND f.to_step >= p.window_step
    WHERE p.category = 'productive' AND NOT p.tail
    GROUP BY p.attempt, p.start_ns
),
divided AS (
    SELECT e.*, a.outcome,
        CASE
            WHEN e.category <> 'productive' THEN e.end_ns
            WHEN e.tail THEN CASE WHEN a.outcome = 'aborted' THEN e.start_ns ELSE e.end_ns END
            ELSE e.start_ns + ((e.end_ns - e.start_ns)::HUGEINT * coalesce(k.kept, 0) // e.c)::BIGINT
        END AS kept_until_ns,
        coalesce(l.charged_attempt, CASE WHEN e.tail THEN e.attempt END) AS productive_attempt,
        coalesce(l.charged_life, CASE WHEN e.tail THEN e.life END) AS productive_life
    FROM evaluated e
    JOIN gp_attempts a USING (attempt)
    LEFT JOIN kept_shares k ON k.attempt = e.attempt AND k.start_ns = e.start_ns
    LEFT JOIN last_thrown l ON l.attempt = e.attempt AND l.start_ns = e.start_ns
)
SELECT attempt, life, step_before AS step, CASE WHEN thrown THEN 'rework' ELSE category END AS category,
    CASE WHEN restart THEN 'restart' WHEN NOT thrown AND category IN ('startup', 'unattributed', 'hang') THEN name END AS phase,
    start_ns, kept_until_ns AS end_ns,
    CASE WHEN thrown THEN charged_attempt END AS charged_attempt, CASE WHEN thrown THEN charged_life END AS charged_life,
    before_rollback
FROM divided WHERE kept_until_ns > start_ns
UNION ALL
SELECT attempt, life, step_before, 'rework', NULL, kept_until_ns, end_ns, productive_attempt, productive_life, before_rollback
FROM divided WHERE end_ns > kept_until_ns
