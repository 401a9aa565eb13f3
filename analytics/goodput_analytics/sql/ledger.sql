-- Purpose: the ledger: every GPU-second that the run held, once, in one category.
-- Inputs:  gp_entries, gp_granted_entries, gp_attempts, gp_allocations
-- Grain:   one row per entry, exclusive and exhaustive over the GPUs that each job held.
-- Columns: attempt   NULL for GPUs held by no attempt
--          category, phase, start_ns, end_ns, gpus, step; the others as in gp_entries
-- Algorithm: without an allocation a job holds what its attempts drive; else what granted_entries say.
CREATE OR REPLACE TEMP TABLE gp_ledger AS
WITH owned AS (
    SELECT attempt FROM gp_attempts WHERE job IS NULL OR job NOT IN (SELECT job FROM gp_allocations)
)
SELECT e.attempt::INTEGER AS attempt, e.step, e.category::gp_category AS category, e.phase, e.start_ns, e.end_ns, h.gpus,
    e.place::gp_place AS place, e.charged_attempt::INTEGER AS charged_attempt, e.charged_life::INTEGER AS charged_life,
    e.latest_rank
FROM gp_entries e
JOIN owned o ON o.attempt = e.attempt
JOIN gp_attempts h ON h.attempt = e.held_by
WHERE h.gpus > 0
UNION ALL
SELECT * FROM gp_granted_entries
