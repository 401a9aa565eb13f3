-- Purpose: the ledger as everybody else reads it.
-- Inputs:  gp_ledger
-- Grain:   one row per entry. The sum of (end_ns - start_ns) * gpus is what the run was allocated, exactly.
-- Columns: run; attempt (NULL: GPUs held by no attempt); category; phase; start_ns, end_ns (ns since the epoch, aligned
--          clocks); gpus; step (NULL outside steps)
CREATE OR REPLACE TEMP VIEW ledger_intervals AS
SELECT r.run, l.attempt, l.category, l.phase, l.start_ns, l.end_ns, l.gpus, l.step
FROM gp_ledger l CROSS JOIN gp_run r
