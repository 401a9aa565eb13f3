-- Purpose: the lives of the run in order, for the line: what each began from, reached and made safe.
-- Inputs:  gp_window_times, gp_segments, gp_events, gp_saves, gp_attempts
-- Grain:   one row per (attempt, life) with a step, a word of what it resumed from, or a durable save; none of an
--          attempt after the last that has a step or such a word: it is as if it had not begun.
-- Columns: first_step, first_c, last_step      NULL without a step
--          resumes     the steps that its ranks resumed from before their attempt's end, without those that resumed
--                      from nothing
--          said        ranks that said what they resumed from; every  all did
--          durable_step  of the newest durable save
CREATE OR REPLACE TEMP TABLE gp_lives AS
WITH steps AS (
    SELECT attempt, life, arg_min(step, idx) AS first_step, arg_min(c, idx) AS first_c, max(step) AS last_step,
        min(start_ns) AS first_start_ns, max(end_ns) AS end_ns
    FROM gp_window_times GROUP BY attempt, life
),
ranks AS (SELECT attempt, life, count(DISTINCT source_id) AS ranks FROM gp_segments GROUP BY attempt, life),
resumed AS (
    SELECT g.attempt, g.life, list(e.step) FILTER (e.step IS NOT NULL) AS resumes, count(DISTINCT e.source_id) AS said
    FROM gp_events e JOIN gp_segments g ON g.source_id = e.source_id AND e.seq BETWEEN g.from_seq AND g.to_seq
    JOIN gp_attempts a ON a.attempt = g.attempt
    WHERE e.kind = 'resume' AND e.ts_ns <= a.end_ns
    GROUP BY g.attempt, g.life
),
durable AS (
    SELECT attempt, life, arg_max(step, durable_ns) AS durable_step FROM gp_saves WHERE durable_ns IS NOT NULL
    GROUP BY attempt, life
)
SELECT r.attempt, r.life, s.first_step, s.first_c, s.last_step, s.first_start_ns, s.end_ns,
    coalesce(u.resumes, []::BIGINT[]) AS resumes, coalesce(u.said, 0) AS said, coalesce(u.said >= r.ranks, false) AS every,
    d.durable_step
FROM ranks r
LEFT JOIN steps s ON s.attempt = r.attempt AND s.life = r.life
LEFT JOIN resumed u ON u.attempt = r.attempt AND u.life = r.life
LEFT JOIN durable d ON d.attempt = r.attempt AND d.life = r.life
WHERE (s.last_step IS NOT NULL OR u.said IS NOT NULL OR d.durable_step IS NOT NULL)
    AND r.attempt <= greatest((SELECT max(attempt) FROM steps), (SELECT max(attempt) FROM resumed))
ORDER BY r.attempt, r.life
