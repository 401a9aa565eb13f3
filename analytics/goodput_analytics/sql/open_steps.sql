-- Purpose: the steps of ranks that are not kept reduced, and few others.
-- Inputs:  gp_rank_steps; the connection's variable gp_open_from_ns: no such step begins before it, by its own clock
-- Grain:   as gp_rank_steps.
-- Algorithm: steps lie in the order in which they landed, so that a bound on their time spares what is older.
CREATE OR REPLACE TEMP VIEW gp_open_steps AS
SELECT * FROM gp_rank_steps WHERE start_ns >= getvariable('gp_open_from_ns')
