-- Purpose: the time between an attempt's last step and its end.
-- Inputs:  gp_tails, gp_attempts, gp_covers, gp_last_lives, gp_fates
-- Grain:   one row per entry: exclusive intervals.
-- Columns: category, phase; start_ns, end_ns; charged_…  whose end pays: the unfinished step of an abort, an evaluation
--          of a thrown-away step
-- Algorithm: up to the last mark what no span covers is unattributed. From there to the end: beyond the limit a hang;
--            (a finished attempt has such time only if it is one: gp_tails.declared_ns); within it the open activity's: at an abort an unfinished step is rework, in a live attempt still productive.
CREATE OR REPLACE TEMP TABLE gp_tail_entries AS
WITH ends AS (
    SELECT t.*, a.end_ns, a.outcome, l.life, l.step
    FROM gp_tails t JOIN gp_attempts a USING (attempt)
    JOIN gp_last_lives l USING (attempt)
),
covers AS (
    SELECT e.attempt, greatest(c.start_ns, e.steps_end_ns) AS start_ns, least(c.end_ns, e.declared_ns) AS end_ns
    FROM ends e JOIN gp_covers c ON c.attempt = e.attempt AND c.end_ns > e.steps_end_ns AND c.start_ns < e.declared_ns
),
holes AS (
    SELECT attempt, lag(end_ns) OVER (PARTITION BY attempt ORDER BY start_ns) AS start_ns, start_ns AS end_ns FROM covers
    UNION ALL
    SELECT c.attempt, max(c.end_ns), e.declared_ns FROM covers c JOIN ends e USING (attempt)
    GROUP BY c.attempt, e.declared_ns
    UNION ALL
    SELECT e.attempt, e.steps_end_ns, coalesce((SELECT min(c.start_ns) FROM covers c WHERE c.attempt = e.attempt), e.declared_ns)
    FROM ends e
),
judged AS (
    SELECT *,
        CASE
            WHEN hung THEN CASE WHEN outcome = 'live' AND paused THEN 'unattributed' ELSE 'hang' END
            WHEN outcome = 'live' THEN coalesce(open_category, 'productive')
            WHEN open_category = 'productive' THEN 'rework'
            ELSE coalesce(open_category, 'rework')
        END AS category
    FROM ends WHERE end_ns > declared_ns
),
stills AS (
    SELECT j.* REPLACE (CASE WHEN f.attempt IS NOT NULL THEN 'rework' ELSE j.category END AS category),
        f.charged_attempt, f.charged_life, f.attempt IS NOT NULL AS thrown
    FROM judged j LEFT JOIN gp_fates f ON j.category = 'evaluation' AND j.activity = 'evaluation' AND NOT f.kept
        AND f.attempt = j.attempt AND f.life = j.life AND coalesce(j.open_step, j.step) > f.after_step
        AND coalesce(j.open_step, j.step) <= f.to_step
)
SELECT attempt, NULL::BIGINT AS life, NULL::BIGINT AS step, 'unattributed' AS category, NULL::VARCHAR AS phase,
    start_ns, end_ns, NULL::BIGINT AS charged_attempt, NULL::BIGINT AS charged_life
FROM holes WHERE end_ns > start_ns
UNION ALL
SELECT attempt, life, step, category,
    CASE
        WHEN category = 'hang' THEN activity
        WHEN NOT hung AND category IN ('unattributed', 'startup') THEN activity
    END,
    declared_ns, end_ns,
    CASE WHEN thrown THEN charged_attempt WHEN outcome = 'aborted' AND category = 'rework' THEN attempt END,
    CASE WHEN thrown THEN charged_life WHEN outcome = 'aborted' AND category = 'rework' THEN life END
FROM stills
