-- Purpose: the clock offset that holds from a moment on, for events that are no steps.
-- Inputs:  gp_members, gp_clocks
-- Grain:   one row per (source_id, from_ns).
-- Columns: from_ns  own clock; the first block's offset holds from the beginning of time
--          offset_ns
CREATE OR REPLACE TEMP TABLE gp_clock_marks AS
WITH sources AS (SELECT DISTINCT source_id FROM gp_members)
SELECT s.source_id,
    CASE WHEN row_number() OVER (PARTITION BY s.source_id ORDER BY k.from_ns, k.life_id, k.block) = 1
        THEN -9223372036854775807 ELSE k.from_ns END AS from_ns,
    coalesce(k.offset_ns, 0) AS offset_ns
FROM sources s LEFT JOIN gp_clocks k ON k.source_id = s.source_id
