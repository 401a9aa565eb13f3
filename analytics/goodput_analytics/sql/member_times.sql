-- Purpose: from when on another source's word about a process is about which of its parts.
-- Inputs:  gp_members
-- Grain:   one row per (source_id, part).
-- Columns: from_ns  the part's start on its own clock; the first part's reaches back to the beginning of time
CREATE OR REPLACE TEMP TABLE gp_member_times AS
SELECT source, source_id, part, attempt, rank,
    CASE WHEN part = min(part) OVER (PARTITION BY source_id) THEN -9223372036854775807 ELSE process_ns END AS from_ns
FROM gp_members
