-- Purpose: how long the run's jobs waited to be admitted.
-- Inputs:  gp_allocations
-- Grain:   one row.
-- Columns: wait_ns  NULL where no allocation tells
CREATE OR REPLACE TEMP TABLE gp_queue_wait AS
SELECT sum(start_ns - submit_ns) AS wait_ns FROM (
    SELECT job, submit_ns, min(start_ns) AS start_ns FROM gp_allocations WHERE submit_ns IS NOT NULL
    GROUP BY job, submit_ns
)
