-- Purpose: steps that nothing but the line can change any more, so that they can be kept reduced.
-- Inputs:  gp_members, gp_segments, gp_bounded_segments, gp_step_blocks, gp_attempts, gp_limits, closed_steps; $before_ns
-- Grain:   one row per attempt that has any.
-- Columns: anchor      the process under whose key they are kept: the same as before, where any were
--          from_step, below  they are those from from_step on and below `below`
-- Algorithm: whole blocks of 1,000 step numbers of which every rank told before $before_ns, and none that is still being
--            filled: the last block only when the attempt had ended before $before_ns too. Attempts of several processes,
--            each with one part and one life that began no number anew; the others keep their rows.
CREATE OR REPLACE TEMP TABLE gp_closing AS
WITH parts AS (SELECT source_id FROM gp_members GROUP BY source_id HAVING count(*) > 1),
unfit AS (
    SELECT attempt FROM gp_segments WHERE NOT whole OR life > 0 OR alone OR from_seq <> -1
    UNION SELECT attempt FROM gp_limits WHERE late
    UNION SELECT m.attempt FROM gp_members m JOIN gp_step_blocks b ON b.source_id = m.source_id WHERE b.back OR b.again
    UNION SELECT m.attempt FROM gp_members m SEMI JOIN parts p ON p.source_id = m.source_id
),
blocks AS (
    SELECT m.attempt, b.block, max(b.last_told_ns) AS told_ns
    FROM gp_step_blocks b JOIN gp_members m ON m.source_id = b.source_id
    WHERE m.attempt NOT IN (SELECT attempt FROM unfit)
    GROUP BY m.attempt, b.block
),
bounds AS (
    SELECT b.attempt, 1000 * least(
        min(b.block) FILTER (b.told_ns >= $before_ns::BIGINT),
        max(b.block) + CASE WHEN any_value(a.outcome) <> 'live' AND any_value(a.release_ns) < $before_ns::BIGINT THEN 1 ELSE 0 END
    ) AS below
    FROM blocks b JOIN gp_attempts a ON a.attempt = b.attempt
    GROUP BY b.attempt
),
anchors AS (
    SELECT m.attempt, coalesce(min(m.source_id) FILTER (c.source_id IS NOT NULL), min(m.source_id)) AS anchor,
        coalesce(max(c.below), 0) AS from_step
    FROM gp_members m LEFT JOIN closed_steps c ON c.source_id = m.source_id
    WHERE m.source_id IN (SELECT source_id FROM gp_step_blocks)
    GROUP BY m.attempt
)
SELECT b.attempt, a.anchor, a.from_step, b.below
FROM bounds b JOIN anchors a ON a.attempt = b.attempt
WHERE b.below > a.from_step
