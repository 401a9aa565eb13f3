-- Purpose: what each unplanned end of a running attempt cost, whatever the checkpoint interval.
-- Inputs:  gp_incidents, gp_attempts, gp_tails
-- Grain:   one row per such end.
-- Columns: hang_ns      from the last progress to the abort where the end was a hang, else 0
--          restart_ns   time for which GPUs were held on the way to the next first step (GPU time over the larger of the
--                       two attempts' GPUs); NULL where no step followed. Time in a queue is not in it
CREATE OR REPLACE TEMP TABLE gp_advice_restarts AS
SELECT i.attempt, i.abort_ns,
    CASE WHEN i.cause = 'hang' THEN i.detection_ns ELSE 0 END AS hang_ns,
    CASE WHEN i.recovered_ns IS NOT NULL THEN i.restart_gpu_ns / greatest(a.gpus, coalesce(n.gpus, a.gpus)) END AS restart_ns
FROM gp_incidents i
JOIN gp_attempts a ON a.attempt = i.attempt
JOIN gp_tails t ON t.attempt = i.attempt
LEFT JOIN gp_attempts n ON n.attempt = i.attempt + 1
WHERE i.cause IN ('crash', 'hang', 'lost') AND a.gpus > 0
