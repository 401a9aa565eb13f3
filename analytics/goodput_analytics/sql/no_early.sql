-- Purpose: gp_early where nothing is kept early, or nothing of it is wanted.
-- Grain:   as gp_early: no row.
CREATE OR REPLACE TEMP TABLE gp_early (attempt BIGINT, below BIGINT)
