-- Purpose: attempts in which too few ranks measured their own work in some step, so that gaps alone must count.
-- Inputs:  gp_windows
-- Grain:   one row per attempt.
CREATE OR REPLACE TEMP TABLE gp_gap_attempts AS
SELECT DISTINCT attempt FROM gp_windows WHERE 2 * busy_ranks < ranks
