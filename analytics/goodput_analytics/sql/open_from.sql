-- Purpose: from when on, by each process's own clock, there are steps that are not kept reduced.
-- Inputs:  gp_step_blocks, gp_segments
-- Grain:   one row.
SELECT coalesce(min(b.first_start_ns), 9223372036854775807) AS from_ns
FROM gp_step_blocks b
ANTI JOIN gp_segments g
    ON g.source_id = b.source_id AND g.part = b.part AND g.whole AND b.block * 1000 < g.closed_below
