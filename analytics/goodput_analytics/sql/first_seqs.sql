-- Purpose: gp_segments with the first step of each, whose gap before it is nobody's.
-- Inputs:  gp_segments, gp_step_blocks, gp_lived_steps
-- Grain:   as gp_segments.
-- Columns: first_seq  the seq of the segment's first step, NULL if it has none; last_step  its last step's number
CREATE OR REPLACE TEMP TABLE gp_segments AS
SELECT g.*, f.first_seq, f.last_step
FROM gp_segments g LEFT JOIN (
    SELECT g.source_id, g.from_seq, min(b.first_seq) AS first_seq, arg_max(b.top_step, b.last_seq) AS last_step
    FROM gp_step_blocks b JOIN gp_segments g ON g.source_id = b.source_id AND g.part = b.part AND g.whole
    GROUP BY g.source_id, g.from_seq
    UNION ALL
    SELECT source_id, from_seq, min(seq), arg_max(step, seq) FROM gp_lived_steps WHERE NOT whole
    GROUP BY source_id, from_seq
) f ON f.source_id = g.source_id AND f.from_seq = g.from_seq
