-- Purpose: attempts of one rank, whose steps are the job's.
-- Inputs:  gp_members
-- Grain:   one row per attempt.
CREATE OR REPLACE TEMP TABLE gp_solo_attempts AS
SELECT attempt FROM gp_members GROUP BY attempt HAVING count(*) = 1
