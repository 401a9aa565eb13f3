-- Purpose: the clocks' offsets in the blocks to be closed.
-- Inputs:  gp_closing, gp_segments, gp_clocks
-- Grain:   one row per process and block.
CREATE OR REPLACE TEMP TABLE gp_closing_clocks AS
SELECT k.source_id, k.block, k.offset_ns
FROM gp_clocks k
JOIN gp_segments g ON g.source_id = k.source_id AND g.life_id = k.life_id
JOIN gp_closing c ON c.attempt = g.attempt AND k.block * 1000 >= c.from_step AND k.block * 1000 < c.below
