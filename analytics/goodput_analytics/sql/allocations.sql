-- Purpose: the scheduler's word: when and how many GPUs a job held.
-- Inputs:  ev_allocation, gp_job_names (the jobs of this run's launches); $run_id, $launch, $now_ns
-- Grain:   one row per (job, start_ns): GPUs held from start_ns to end_ns.
-- Columns: submit_ns; start_ns, end_ns (what is still held ends now); gpus; open  still held; end_reason
--          chain  grants that follow one another without a gap
-- Algorithm: of several events with one start the latest counts; another start holds from then on.
CREATE OR REPLACE TEMP TABLE gp_allocations AS
WITH latest AS (
    SELECT * FROM ev_allocation
    WHERE job IN (SELECT job FROM gp_job_names WHERE own)
        OR (run_id = $run_id AND $launch = 0 AND job NOT IN (SELECT job FROM gp_job_names))
    QUALIFY row_number() OVER (PARTITION BY job, start_ns ORDER BY ts_ns DESC, source_id DESC, seq DESC) = 1
),
followed AS (
    SELECT *, lead(start_ns) OVER (PARTITION BY job ORDER BY start_ns) AS next_ns FROM latest
),
bounded AS (
    SELECT job, submit_ns, start_ns, gpus, end_reason, end_ns IS NULL AND next_ns IS NULL AS open,
        greatest(start_ns, least(coalesce(end_ns, next_ns, greatest($now_ns, start_ns)), coalesce(next_ns, 9223372036854775807))) AS end_ns
    FROM followed
),
broken AS (
    SELECT *, coalesce(start_ns > lag(end_ns) OVER (PARTITION BY job ORDER BY start_ns), true) AS breaks FROM bounded
)
SELECT * EXCLUDE (breaks), sum(breaks::INTEGER) OVER (PARTITION BY job ORDER BY start_ns) AS chain
FROM broken
