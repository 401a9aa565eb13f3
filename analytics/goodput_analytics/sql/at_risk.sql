-- Purpose: what would be lost if the run died now.
-- Inputs:  gp_ledger, gp_portions; $durable_step
-- Grain:   one row.
-- Columns: gpu_ns  productive GPU-nanoseconds of kept steps since the last durable checkpoint, a DOUBLE
-- Algorithm: a window's productive time is that of its kept steps; the part that lies above the checkpoint is at risk.
CREATE OR REPLACE TEMP TABLE gp_at_risk AS
SELECT coalesce(sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus
    * least(p.steps, p.step - p.c + p.before + p.steps - $durable_step) / p.steps::DOUBLE), 0) AS gpu_ns
FROM gp_ledger l
JOIN gp_portions p ON p.attempt = l.attempt AND p.step = l.step AND p.kept
    AND l.start_ns >= p.begin_ns AND l.end_ns <= p.end_ns
WHERE l.category = 'productive' AND l.place = 'steps' AND p.step - p.c + p.before + p.steps > $durable_step
