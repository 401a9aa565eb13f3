-- Purpose: lines that could not be taken, in the streams that brought events of the run.
-- Inputs:  rejected, stream_runs; $run_id
-- Grain:   one row per reason.
CREATE OR REPLACE TEMP TABLE gp_rejected_lines AS
SELECT reason, count(*) AS lines FROM rejected
WHERE stream_id IN (SELECT stream_id FROM stream_runs WHERE run_id = $run_id)
GROUP BY reason ORDER BY reason
