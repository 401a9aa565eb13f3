-- Purpose: the time that declared spans take after an attempt's first step began.
-- Inputs:  gp_window_covers, gp_covers, gp_spans, gp_life_moments, gp_tails, gp_window_parts, gp_last_lives, gp_fates,
--          gp_portions, gp_attempts
-- Grain:   one row per entry: exclusive intervals.
-- Columns: attempt, life, step; category, phase; start_ns, end_ns; charged_…; before_rollback  the time belongs to what
--          follows a rollback, before its first step
-- Algorithm: an evaluation whose step was thrown away is rework; it belongs to the life in which it was begun, also where
--            the next step was a rollback's first. A span whose category is productive shares the fate of the window's
--            steps as the window's own parts do (gp_portions); in the tail of an aborted attempt it is the unfinished
--            step's.
CREATE OR REPLACE TEMP TABLE gp_span_entries AS
WITH placed AS (
    SELECT v.attempt, w.idx, w.life, v.start_ns, v.end_ns, v.name, v.category, v.step, v.restart,
        CASE WHEN w.idx > 0 THEN lag_step.step END AS step_before, false AS tail,
        w.new_life AND v.start_ns < w.start_ns AS before_rollback
    FROM gp_window_covers v
    JOIN gp_window_parts w ON w.attempt = v.attempt AND w.idx = v.idx
    LEFT JOIN gp_window_parts lag_step ON lag_step.attempt = v.attempt AND lag_step.idx = v.idx - 1
    UNION ALL
    SELECT t.attempt, NULL, l.life, greatest(c.start_ns, t.steps_end_ns), least(c.end_ns, t.declared_ns), c.name, c.category,
        c.step, c.restart, l.step, true, false
    FROM gp_tails t
    JOIN gp_covers c ON c.attempt = t.attempt AND c.end_ns > t.steps_end_ns AND c.start_ns < t.declared_ns
    JOIN gp_last_lives l ON l.attempt = t.attempt
),
evaluations AS (
    SELECT s.attempt, s.begin_ns, coalesce(m.life, 0) AS life
    FROM (SELECT DISTINCT attempt, begin_ns FROM gp_spans WHERE name = 'evaluation') s
    ASOF LEFT JOIN gp_life_moments m ON m.attempt = s.attempt AND s.begin_ns >= m.from_ns
    WHERE s.attempt IN (SELECT attempt FROM gp_life_moments)
),
begun AS (
    SELECT p.*, coalesce(e.life, p.life) AS begun_life
    FROM placed p ASOF LEFT JOIN evaluations e ON e.attempt = p.attempt AND e.begin_ns <= p.start_ns
),
evaluated AS (
    SELECT p.*, f.charged_attempt, f.charged_life, f.attempt IS NOT NULL AS thrown
    FROM begun p LEFT JOIN gp_fates f ON p.category = 'evaluation' AND p.name = 'evaluation' AND NOT f.kept
        AND f.attempt = p.attempt AND f.life = p.begun_life AND coalesce(p.step, p.step_before) > f.after_step
        AND coalesce(p.step, p.step_before) <= f.to_step
),
divided AS (
    SELECT e.attempt, e.life, e.step_before,
        CASE WHEN r.kept AND r.applied THEN 'productive' ELSE 'rework' END AS category,
        CASE WHEN NOT r.applied THEN 'skipped' END AS phase,
        e.start_ns + ((e.end_ns - e.start_ns)::HUGEINT * r.before // r.c)::BIGINT AS start_ns,
        e.start_ns + ((e.end_ns - e.start_ns)::HUGEINT * (r.before + r.steps) // r.c)::BIGINT AS end_ns,
        r.charged_attempt, r.charged_life, e.before_rollback
    FROM evaluated e JOIN gp_portions r ON r.attempt = e.attempt AND r.idx = e.idx
    WHERE e.category = 'productive' AND NOT e.tail
),
whole AS (
    SELECT e.*, e.tail AND e.category = 'productive' AND a.outcome = 'aborted' AS unfinished
    FROM evaluated e JOIN gp_attempts a USING (attempt)
    WHERE e.category <> 'productive' OR e.tail
)
SELECT attempt, life, step_before AS step,
    CASE WHEN thrown OR unfinished THEN 'rework' ELSE category END AS category,
    CASE WHEN restart THEN 'restart' WHEN NOT thrown AND category IN ('startup', 'unattributed', 'hang') THEN name END AS phase,
    start_ns, end_ns,
    CASE WHEN thrown THEN charged_attempt WHEN unfinished THEN attempt END AS charged_attempt,
    CASE WHEN thrown THEN charged_life WHEN unfinished THEN life END AS charged_life,
    before_rollback
FROM whole WHERE end_ns > start_ns
UNION ALL
SELECT * FROM divided WHERE end_ns > start_ns
