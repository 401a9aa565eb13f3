-- Purpose: what the run was allocated, counted apart from the ledger, which must add up to it.
-- Inputs:  gp_attempts, gp_allocations
-- Grain:   one row.
-- Columns: held_gpu_ns  GPUs held times time held
-- Algorithm: with an allocation its grants; without, each attempt from its first process to its release, and the time
--            from there to the job's next attempt with the size of the attempt before.
CREATE OR REPLACE TEMP TABLE gp_held AS
WITH ungranted AS (
    SELECT a.*, p.gpus AS gpus_before
    FROM gp_attempts a LEFT JOIN gp_attempts p ON p.attempt = a.previous_attempt
    WHERE a.job IS NULL OR a.job NOT IN (SELECT job FROM gp_allocations)
)
SELECT coalesce(sum(gpu_ns), 0) AS held_gpu_ns FROM (
    SELECT greatest(process_ns - begin_ns, 0)::HUGEINT * coalesce(gpus_before, 0) AS gpu_ns FROM ungranted
    UNION ALL
    SELECT greatest(release_ns - greatest(process_ns, begin_ns), 0)::HUGEINT * gpus FROM ungranted
    UNION ALL
    SELECT (end_ns - start_ns)::HUGEINT * gpus FROM gp_allocations
)
