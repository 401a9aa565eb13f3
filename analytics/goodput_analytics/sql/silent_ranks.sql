-- Purpose: ranks that an attempt's world size promises and that never reported.
-- Inputs:  gp_attempts, gp_members
-- Grain:   one row per rank; at most a million of each attempt's are looked at.
CREATE OR REPLACE TEMP TABLE gp_silent_ranks AS
WITH promised AS (
    SELECT a.attempt, unnest(range(least(a.world_size, 1000000))) AS rank
    FROM gp_attempts a
    WHERE a.world_size > (SELECT count(DISTINCT m.rank) FROM gp_members m WHERE m.attempt = a.attempt)
)
SELECT DISTINCT p.rank FROM promised p
ANTI JOIN gp_members m ON m.attempt = p.attempt AND m.rank = p.rank
ORDER BY p.rank
