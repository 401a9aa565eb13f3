-- Purpose: attempt and life of each life_id.
-- Inputs:  gp_segments
-- Grain:   one row per life_id.
-- Columns: alone  no rank has a peer
CREATE OR REPLACE TEMP TABLE gp_life_names AS
SELECT DISTINCT life_id, attempt, life, alone FROM gp_segments
