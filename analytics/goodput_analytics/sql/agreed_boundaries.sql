-- Purpose: one set of lives for all ranks of an attempt, where they told different ones.
-- Inputs:  gp_boundaries, gp_uneven_lives, gp_members, gp_rank_steps
-- Grain:   as gp_boundaries.
-- Algorithm: the rank that tells most cuts in the middle between the ends of its steps on either side (or where it said
--            that it resumed); every other rank's life begins with its first step that ended after that.
CREATE OR REPLACE TEMP TABLE gp_boundaries AS
WITH cuts AS (
    SELECT b.attempt, b.source_id, b.part, b.seq,
        coalesce(b.last_end_ns + (b.next_end_ns - b.last_end_ns) // 2, b.told_ns) AS cut_ns
    FROM gp_boundaries b JOIN gp_uneven_lives u USING (attempt, source_id, part)
),
others AS (
    SELECT m.attempt, m.source_id, m.part, min(r.seq) AS seq, c.cut_ns
    FROM cuts c
    JOIN gp_members m ON m.attempt = c.attempt AND NOT (m.source_id = c.source_id AND m.part = c.part)
    JOIN gp_rank_steps r ON r.source_id = m.source_id AND r.seq BETWEEN m.from_seq AND m.to_seq AND r.end_ns >= c.cut_ns
    GROUP BY m.attempt, m.source_id, m.part, c.cut_ns
)
SELECT * FROM gp_boundaries WHERE attempt NOT IN (SELECT attempt FROM gp_uneven_lives)
UNION ALL
SELECT b.* FROM gp_boundaries b JOIN gp_uneven_lives u USING (attempt, source_id, part)
UNION ALL
SELECT attempt, source_id, part, seq, min(cut_ns), NULL, NULL FROM others GROUP BY attempt, source_id, part, seq
