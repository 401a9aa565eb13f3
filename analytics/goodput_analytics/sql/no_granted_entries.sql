-- Purpose: in place of granted_entries for a run without allocations.
-- Inputs:  none
-- Grain:   as gp_granted_entries; no rows.
CREATE OR REPLACE TEMP TABLE gp_granted_entries (
    attempt INTEGER, step BIGINT, category gp_category, phase VARCHAR, start_ns BIGINT, end_ns BIGINT, gpus BIGINT,
    place gp_place, charged_attempt INTEGER, charged_life INTEGER, latest_rank BIGINT)
