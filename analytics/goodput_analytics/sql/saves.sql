-- Purpose: the saves of the job, not of its ranks.
-- Inputs:  gp_spans, gp_events, gp_life_moments, gp_windows, gp_attempts
-- Grain:   one row per (attempt, life, step) that was saved, or said to be durable.
-- Columns: begin_ns, end_ns   from the first rank's begin to the last one's end; NULL where only durable was said
--          blocking_ns        the union of the ranks' intervals
--          async; completed   every rank that began it ended it well
--          durable_ns         when it became safe, NULL if it never did: a blocking save when the last rank ended it, an
--                             asynchronous one when somebody said so before the next attempt's first process started
--          failed             it ended badly, or its attempt ended before it was durable
CREATE OR REPLACE TEMP TABLE gp_saves AS
WITH spans AS (
    SELECT s.*, coalesce(m.life, 0) AS life
    FROM gp_spans s ASOF LEFT JOIN gp_life_moments m ON m.attempt = s.attempt AND s.begin_ns >= m.from_ns
    WHERE s.name = 'checkpoint'
),
stepped AS (
    SELECT s.* REPLACE (coalesce(s.step, w.step, -1) AS step)
    FROM spans s ASOF LEFT JOIN gp_windows w ON w.attempt = s.attempt AND w.first_end_ns <= s.begin_ns
),
reached AS (
    SELECT *, max(blocking_end_ns) OVER (PARTITION BY attempt, life, step ORDER BY begin_ns, blocking_end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach_ns
    FROM stepped
),
by_rank AS (
    SELECT attempt, life, step, source_id, bool_or(async) AS async, min(end_ns) FILTER (closed AND ok) AS well_ns, bool_or(closed AND NOT ok) AS badly,
        min(begin_ns) AS begin_ns, max(end_ns) AS end_ns,
        sum(greatest(blocking_end_ns - greatest(begin_ns, coalesce(reach_ns, begin_ns)), 0)) AS blocking_ns
    FROM reached GROUP BY attempt, life, step, source_id
),
saves AS (
    SELECT attempt, life, step, bool_or(async) AS async, bool_and(well_ns IS NOT NULL) AS completed, max(well_ns) AS well_ns,
        bool_or(badly) AS badly, min(begin_ns) AS begin_ns, max(end_ns) AS end_ns, sum(blocking_ns)::BIGINT AS blocking_ns
    FROM by_rank GROUP BY attempt, life, step
),
told AS (
    SELECT e.attempt, coalesce(m.life, 0) AS told_life, e.step, e.ts_ns
    FROM gp_events e
    JOIN gp_attempts a ON a.attempt = e.attempt
    ASOF LEFT JOIN gp_life_moments m ON m.attempt = e.attempt AND e.ts_ns >= m.from_ns
    WHERE e.kind = 'durable' AND e.flag AND e.ts_ns < coalesce(a.next_ns, 9223372036854775807)
),
matched AS (
    SELECT t.attempt, coalesce(s.life, t.told_life) AS life, t.step, min(t.ts_ns) AS durable_ns
    FROM told t ASOF LEFT JOIN saves s ON s.attempt = t.attempt AND s.step = t.step AND t.ts_ns >= s.begin_ns
    GROUP BY t.attempt, coalesce(s.life, t.told_life), t.step
)
SELECT
    coalesce(s.attempt, m.attempt) AS attempt, coalesce(s.life, m.life) AS life, coalesce(s.step, m.step) AS step,
    s.begin_ns, s.end_ns, coalesce(s.blocking_ns, 0) AS blocking_ns, coalesce(s.async, true) AS async,
    coalesce(s.completed, true) AS completed,
    CASE WHEN s.completed AND NOT s.async THEN least(s.well_ns, m.durable_ns) ELSE m.durable_ns END AS durable_ns,
    CASE
        WHEN m.durable_ns IS NOT NULL OR (s.completed AND NOT s.async) THEN false
        ELSE a.outcome <> 'live' OR (s.badly AND NOT s.completed)
    END AS failed
FROM saves s
FULL JOIN matched m ON m.attempt = s.attempt AND m.life = s.life AND m.step = s.step
JOIN gp_attempts a ON a.attempt = coalesce(s.attempt, m.attempt)
