-- Purpose: the interruptions of the run and what each cost.
-- Inputs:  gp_ends, gp_ledger, gp_portions
-- Grain:   one row per attempt that aborted and per rollback.
-- Columns: attempt, life; cause; last_progress_ns, abort_ns, detection_ns, recovered_ns; lost_steps;
--          hang_gpu_ns, rework_gpu_ns
--          restart_gpu_ns  startup from the abort to the next first step (or the end of what came next), teardown included
CREATE OR REPLACE TEMP TABLE gp_incidents AS
WITH rework AS (
    SELECT charged_attempt AS attempt, charged_life AS life,
        sum((end_ns - start_ns)::HUGEINT * gpus) AS rework_gpu_ns
    FROM gp_ledger WHERE category = 'rework'
    GROUP BY charged_attempt, charged_life
),
lost AS (
    SELECT charged_attempt AS attempt, charged_life AS life, sum(steps)::BIGINT AS lost_steps
    FROM gp_portions WHERE NOT kept GROUP BY charged_attempt, charged_life
),
hangs AS (
    SELECT attempt, sum((end_ns - start_ns)::HUGEINT * gpus) AS hang_gpu_ns
    FROM gp_ledger WHERE category = 'hang' AND place IN ('tail', 'silence') GROUP BY attempt
),
restarts AS (
    SELECT e.attempt, e.life, e.inside, sum(greatest(least(l.end_ns, coalesce(e.until_ns, l.end_ns))
        - greatest(l.start_ns, e.abort_ns), 0)::HUGEINT * l.gpus) AS gpu_ns
    FROM gp_ends e
    JOIN gp_ledger l ON l.attempt BETWEEN e.attempt AND CASE WHEN e.inside THEN e.attempt ELSE e.attempt + 1 END
    WHERE l.category = 'startup'
    GROUP BY e.attempt, e.life, e.inside
)
SELECT
    i.attempt, i.life, i.cause, i.last_progress_ns, i.abort_ns, i.detection_ns, i.recovered_ns,
    coalesce(o.lost_steps, 0) AS lost_steps,
    CASE WHEN i.cause = 'rollback' THEN 0 ELSE coalesce(h.hang_gpu_ns, 0) END AS hang_gpu_ns,
    coalesce(r.rework_gpu_ns, 0) AS rework_gpu_ns,
    coalesce(t.gpu_ns, 0) AS restart_gpu_ns,
    i.inside
FROM gp_ends i
LEFT JOIN rework r ON r.attempt = i.attempt AND r.life = i.life
LEFT JOIN lost o ON o.attempt = i.attempt AND o.life = i.life
LEFT JOIN hangs h ON h.attempt = i.attempt
LEFT JOIN restarts t ON t.attempt = i.attempt AND t.life = i.life AND t.inside = i.inside
