-- Purpose: what the run's saves cost and how often they came.
-- Inputs:  gp_saves, gp_tails, gp_attempts, gp_end_causes
-- Grain:   one row.
-- Columns: count, failed; mean_blocking_ns  over the completed saves, NULL without any
--          mean_interval_ns  between starts of consecutive saves of one attempt
--          running_ns        from first steps to ends of attempts; interruptions  unplanned ones
--          last_durable_ns   when the newest durable save became so
CREATE OR REPLACE TEMP TABLE gp_checkpoints AS
WITH intervals AS (
    SELECT begin_ns - lag(begin_ns) OVER (PARTITION BY attempt ORDER BY begin_ns) AS interval_ns
    FROM gp_saves WHERE begin_ns IS NOT NULL
),
running AS (
    SELECT sum(greatest(a.end_ns - t.first_step_ns, 0)) AS running_ns FROM gp_tails t JOIN gp_attempts a USING (attempt)
)
SELECT
    (SELECT count(*) FROM gp_saves WHERE durable_ns IS NOT NULL) AS count,
    (SELECT count(*) FROM gp_saves WHERE failed) AS failed,
    (SELECT avg(blocking_ns) FROM gp_saves WHERE durable_ns IS NOT NULL AND begin_ns IS NOT NULL) AS mean_blocking_ns,
    (SELECT avg(interval_ns) FROM intervals) AS mean_interval_ns,
    (SELECT running_ns FROM running) AS running_ns,
    (SELECT count(*) FROM gp_end_causes WHERE end_cause IN ('crash', 'hang', 'lost')) AS interruptions,
    (SELECT max(durable_ns) FROM gp_saves) AS last_durable_ns
