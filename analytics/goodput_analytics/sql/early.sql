-- Purpose: attempts whose older steps are kept reduced although all their rows are there, where that still holds.
-- Inputs:  closed_early, kept_steps, gp_members, gp_boundaries, gp_step_blocks, gp_marks; $run_id
-- Grain:   one row per attempt of which it holds.
-- Columns: below  the steps numbered below it
-- Algorithm: what a reduced step was made of is counted: it holds as long as nothing came after. Its processes are the
--            same, none began a life anew; of each there are as many steps in those blocks, and as many other events that
--            say something about them, told up to horizon_ns (its own clock).
CREATE OR REPLACE TEMP TABLE gp_early AS
WITH told AS (
    SELECT m.attempt, m.part, m.from_seq, m.to_seq, e.*
    FROM gp_members m JOIN (SELECT * FROM closed_early WHERE run_id = $run_id) e ON e.source_id = m.source_id
),
blocks AS (
    SELECT t.source_id, sum(b.steps)::BIGINT AS steps, max(b.last_seq) AS last_seq
    FROM told t JOIN gp_step_blocks b ON b.source_id = t.source_id AND b.block * 1000 < t.below
    GROUP BY t.source_id
),
marks AS (
    SELECT t.source_id, count(*) AS marks
    FROM told t JOIN gp_marks o ON o.source_id = t.source_id AND o.ts_ns <= t.horizon_ns
    GROUP BY t.source_id
),
kept AS (
    SELECT k.source_id, count(*) AS kept
    FROM kept_steps k JOIN (SELECT DISTINCT anchor_id, below FROM told) t ON t.anchor_id = k.source_id AND k.step < t.below
    GROUP BY k.source_id
),
members AS (SELECT attempt, count(*) AS members FROM gp_members GROUP BY attempt)
SELECT t.attempt, min(t.below) AS below
FROM told t
JOIN members n ON n.attempt = t.attempt
LEFT JOIN blocks b ON b.source_id = t.source_id
LEFT JOIN marks m ON m.source_id = t.source_id
LEFT JOIN kept k ON k.source_id = t.anchor_id
WHERE t.attempt NOT IN (SELECT attempt FROM gp_boundaries)
GROUP BY t.attempt, n.members
HAVING count(*) = n.members AND count(DISTINCT t.anchor_id) = 1 AND count(DISTINCT t.below) = 1
    AND bool_and(t.from_seq = -1 AND t.to_seq = 9223372036854775807 AND coalesce(b.steps, 0) = t.steps
        AND b.last_seq IS NOT DISTINCT FROM t.last_seq AND coalesce(m.marks, 0) = t.marks AND coalesce(k.kept, 0) = t.kept)
