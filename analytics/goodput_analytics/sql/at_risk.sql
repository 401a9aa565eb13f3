-- Purpose: what would be lost if the run died now.
-- Inputs:  gp_ledger, gp_window_parts, gp_attempts; $durable_step
-- Grain:   one row.
-- Columns: gpu_ns  productive GPU-nanoseconds of steps since the last durable checkpoint
CREATE OR REPLACE TEMP TABLE gp_at_risk AS
SELECT coalesce(sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus * least(w.c, w.step - $durable_step) // w.c), 0) AS gpu_ns
FROM gp_ledger l
JOIN gp_window_parts w ON w.attempt = l.attempt AND w.step = l.step AND l.start_ns >= w.begin_ns AND l.end_ns <= w.end_ns
WHERE l.category = 'productive' AND l.place = 'steps' AND l.step > $durable_step
