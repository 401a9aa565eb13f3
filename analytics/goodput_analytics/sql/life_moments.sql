-- Purpose: when each life that follows a rollback began, for what is no step: a save, an evaluation.
-- Inputs:  gp_boundaries, gp_segments, gp_uneven_lives, gp_clock_marks
-- Grain:   one row per (attempt, life), the first life left out.
-- Columns: from_ns  aligned: the first word of the rollback by a rank that tells as many as any
CREATE OR REPLACE TEMP TABLE gp_life_moments AS
SELECT g.attempt, g.life, min(b.told_ns - k.offset_ns) AS from_ns
FROM gp_boundaries b
JOIN gp_segments g ON g.source_id = b.source_id AND g.part = b.part AND g.from_seq = b.seq AND g.life > 0
ANTI JOIN gp_uneven_lives u ON u.source_id = b.source_id AND u.part = b.part AND NOT u.full
ASOF JOIN gp_clock_marks k ON k.source_id = b.source_id AND b.told_ns >= k.from_ns
GROUP BY g.attempt, g.life
