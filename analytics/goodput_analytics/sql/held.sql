-- Purpose: what the run was allocated, counted apart from the ledger, which must add up to it.
-- Inputs:  gp_attempts, gp_allocations
-- Grain:   one row.
-- Columns: held_gpu_ns  GPUs held times time held
-- Algorithm: with an allocation its grants; without, each attempt from its first process to its release, and the time
--            from there to the job's next attempt with the size of the attempt before.
CREATE OR REPLACE TEMP TABLE gp_held AS
WITH ungranted AS (
    SELECT *, lead(process_ns) OVER (PARTITION BY job_key ORDER BY attempt) AS next_start_ns
    FROM gp_attempts WHERE job IS NULL OR job NOT IN (SELECT job FROM gp_allocations)
)
SELECT coalesce(sum(gpu_ns), 0) AS held_gpu_ns FROM (
    SELECT (coalesce(next_start_ns, release_ns) - process_ns)::HUGEINT * gpus AS gpu_ns FROM ungranted
    UNION ALL
    SELECT (end_ns - start_ns)::HUGEINT * gpus FROM gp_allocations
)
