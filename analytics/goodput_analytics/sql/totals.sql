-- Purpose: where the GPU time went, by category and phase.
-- Inputs:  ledger_intervals
-- Grain:   one row per (category, phase).
-- Columns: gpu_ns  exact
CREATE OR REPLACE TEMP TABLE gp_totals AS
SELECT category, phase, sum((end_ns - start_ns)::HUGEINT * gpus) AS gpu_ns
FROM ledger_intervals GROUP BY category, phase
