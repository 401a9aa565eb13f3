-- Purpose: how long the run's jobs waited to be admitted.
-- Inputs:  gp_allocations
-- Grain:   one row.
-- Columns: wait_ns  NULL where no allocation tells
CREATE OR REPLACE TEMP TABLE gp_queue_wait AS
SELECT sum(greatest(start_ns - submit_ns, 0)) AS wait_ns FROM (
    SELECT job, arg_min(coalesce(submit_ns, -1), start_ns) AS submit_ns, min(start_ns) AS start_ns
    FROM gp_allocations GROUP BY job
) WHERE submit_ns >= 0
