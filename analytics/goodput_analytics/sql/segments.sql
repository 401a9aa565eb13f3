-- Purpose: which attempt and which life every event of a rank belongs to.
-- Inputs:  gp_members, gp_boundaries, gp_early, closed_steps
-- Grain:   one row per (source_id, from_seq).
-- Columns: from_seq, to_seq  inclusive; life  counted from 0 in the attempt
--          life_id  one number for attempt and life, which stays when attempts are numbered anew
--          whole    the process has no other life in the attempt
--          many     the process has more segments than each of its rows should be held against
--          alone    no other process belongs to the attempt
--          gone_below    steps of lower numbers are kept reduced (kept_steps), and few of their rows are left
--          closed_below  steps of lower numbers are kept reduced; what rows there are of them count no more
CREATE OR REPLACE TEMP TABLE gp_segments AS
WITH cuts AS (
    SELECT attempt, source_id, part, rank, node, grp, from_seq, to_seq AS part_to_seq FROM gp_members
    UNION ALL
    SELECT b.attempt, b.source_id, b.part, m.rank, m.node, m.grp, b.seq, m.to_seq
    FROM gp_boundaries b JOIN gp_members m ON m.source_id = b.source_id AND m.part = b.part
),
lives AS (
    SELECT
        attempt, source_id, part, rank, node, grp,
        (row_number() OVER own - 1)::INTEGER AS life,
        from_seq,
        least(part_to_seq, coalesce(lead(from_seq) OVER own - 1, part_to_seq)) AS to_seq
    FROM cuts
    WINDOW own AS (PARTITION BY source_id, part ORDER BY from_seq)
),
closed AS (
    SELECT m.attempt, max(c.below) AS below
    FROM closed_steps c JOIN gp_members m ON m.source_id = c.source_id AND m.from_seq = -1
    GROUP BY m.attempt
)
SELECT l.*, dense_rank() OVER (ORDER BY l.attempt, life)::INTEGER AS life_id,
    count(*) OVER (PARTITION BY source_id, part) = 1 AS whole,
    count(*) OVER (PARTITION BY source_id) > 16 AS many,
    l.attempt IN (SELECT attempt FROM gp_members GROUP BY attempt HAVING count(*) = 1) AS alone,
    CASE WHEN life = 0 THEN coalesce(c.below, 0) ELSE 0 END AS gone_below,
    CASE WHEN life = 0 THEN greatest(coalesce(c.below, 0), coalesce(e.below, 0)) ELSE 0 END AS closed_below
FROM lives l
LEFT JOIN closed c ON c.attempt = l.attempt
LEFT JOIN gp_early e ON e.attempt = l.attempt
