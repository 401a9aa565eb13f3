-- Purpose: what each save of the job cost, and how much came before it.
-- Inputs:  gp_saves, gp_tails, gp_attempts
-- Grain:   one row per save that began and became durable.
-- Columns: attempt; begin_ns, end_ns   from the first rank's begin to the last one's end
--          blocking_ns   the loop is blocked; async
--          write_ns      from the end of the blocking to durable, 0 for a blocking save
--          work_ns       since the save before in its attempt (of the first: since the attempt's first step), the time
--                        that the save before blocked left out
--          gpus          of its attempt
CREATE OR REPLACE TEMP TABLE gp_advice_saves AS
WITH begun AS (
    SELECT s.*, coalesce(lag(s.begin_ns + s.blocking_ns) OVER (PARTITION BY s.attempt ORDER BY s.begin_ns, s.life, s.step),
        t.first_step_ns) AS since_ns
    FROM gp_saves s LEFT JOIN gp_tails t ON t.attempt = s.attempt
    WHERE s.begin_ns IS NOT NULL
)
SELECT b.attempt, b.begin_ns, b.end_ns, b.blocking_ns, b.async,
    CASE WHEN b.async THEN greatest(b.durable_ns - b.begin_ns - b.blocking_ns, 0) ELSE 0 END AS write_ns,
    CASE WHEN b.begin_ns >= b.since_ns THEN b.begin_ns - b.since_ns END AS work_ns,
    a.gpus
FROM begun b JOIN gp_attempts a ON a.attempt = b.attempt
WHERE b.durable_ns IS NOT NULL
