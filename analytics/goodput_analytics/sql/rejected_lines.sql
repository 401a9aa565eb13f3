-- Purpose: lines that could not be taken, in the streams that brought events of the run.
-- Inputs:  rejected, rejected_more, stream_runs; $run_id
-- Grain:   one row per reason.
CREATE OR REPLACE TEMP TABLE gp_rejected_lines AS
SELECT reason, sum(lines)::BIGINT AS lines FROM (
    SELECT stream_id, reason, 1 AS lines FROM rejected
    UNION ALL
    SELECT stream_id, reason, lines FROM rejected_more
)
WHERE stream_id IN (SELECT stream_id FROM stream_runs WHERE run_id = $run_id)
GROUP BY reason ORDER BY reason
