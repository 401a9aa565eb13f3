-- Purpose: until when what ranks do is an attempt's progress.
-- Inputs:  gp_attempts, gp_windows
-- Grain:   one row per attempt.
-- Columns: until_ns  its end, if it aborted; late  some rank ended a step after that
CREATE OR REPLACE TEMP TABLE gp_limits AS
SELECT a.attempt,
    CASE WHEN a.outcome = 'live' THEN 9223372036854775807 ELSE a.end_ns END AS until_ns,
    a.outcome <> 'live' AND EXISTS (
        SELECT 1 FROM gp_windows w WHERE w.attempt = a.attempt AND w.last_end_ns > a.end_ns) AS late
FROM gp_attempts a
