-- Purpose: how long the run was running, and what ended that.
-- Inputs:  gp_attempts, gp_tails, gp_end_causes, gp_incidents, gp_members
-- Grain:   one row.
-- Columns: running_ns     from first steps to ends of attempts; to the last progress where the end was a hang, or
--                        where it hangs now, for nothing more can fail then
--          node_ns        the same, times the nodes of each attempt
--          interruptions  unplanned ends of attempts that were running
--          startup_failures  unplanned ends of attempts that never made a step
--          planned, rollbacks
--          nodes, gpus, ranks  of the last attempt; nodes NULL where no rank said where it is
CREATE OR REPLACE TEMP TABLE gp_advice_running AS
WITH nodes AS (
    SELECT attempt, count(DISTINCT node) AS nodes FROM gp_members GROUP BY attempt
),
lived AS (
    SELECT a.attempt, a.gpus, a.world_size, c.end_cause, n.nodes,
        CASE WHEN t.first_step_ns IS NOT NULL THEN greatest(
            CASE WHEN c.end_cause = 'hang' OR (c.end_cause = 'live' AND t.hung) THEN t.mark_ns ELSE a.end_ns END
                - t.first_step_ns, 0) END AS running_ns
    FROM gp_attempts a
    JOIN gp_end_causes c ON c.attempt = a.attempt
    LEFT JOIN gp_tails t ON t.attempt = a.attempt
    LEFT JOIN nodes n ON n.attempt = a.attempt
)
SELECT
    coalesce(sum(running_ns), 0) AS running_ns,
    sum(running_ns::HUGEINT * nodes) FILTER (nodes > 0) AS node_ns,
    count(*) FILTER (end_cause IN ('crash', 'hang', 'lost') AND running_ns IS NOT NULL) AS interruptions,
    count(*) FILTER (end_cause IN ('crash', 'hang', 'lost') AND running_ns IS NULL) AS startup_failures,
    count(*) FILTER (end_cause = 'preempted') AS planned,
    (SELECT count(*) FROM gp_incidents WHERE cause = 'rollback') AS rollbacks,
    nullif(arg_max(nodes, attempt), 0) AS nodes,
    arg_max(gpus, attempt) AS gpus,
    arg_max(world_size, attempt) AS ranks
FROM lived
