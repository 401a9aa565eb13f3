-- Purpose: the ranks' gaps and busy times in windows that declared spans touch, less what those spans cover.
-- Inputs:  gp_touched_steps, gp_covers, gp_own_spans
-- Grain:   as gp_touched_steps.
-- Columns: gap_ns   less what any rank's span covers of it
--          busy_ns  less what the rank's own spans cover inside the step
-- Algorithm: covers exclude one another, so what they take of an interval is what they take up to its end, less what they
--            take up to its beginning: a running sum, looked up twice.
CREATE OR REPLACE TEMP TABLE gp_touched_measures AS
WITH covered AS (
    SELECT attempt, start_ns, end_ns,
        sum(end_ns - start_ns) OVER (PARTITION BY attempt ORDER BY start_ns) - end_ns AS taken_ns
    FROM gp_covers WHERE NOT restart
),
own_covered AS (
    SELECT attempt, source_id, begin_ns AS start_ns, end_ns,
        sum(end_ns - begin_ns) OVER (PARTITION BY attempt, source_id ORDER BY begin_ns) - end_ns AS taken_ns
    FROM gp_own_spans
),
looked_up AS (
    SELECT o.*,
        coalesce(gap_to.taken_ns + least(o.start_ns, gap_to.end_ns), 0)
            - coalesce(gap_from.taken_ns + least(o.after_ns, gap_from.end_ns), 0) AS gap_cover_ns,
        coalesce(own_to.taken_ns + least(o.end_ns, own_to.end_ns), 0)
            - coalesce(own_from.taken_ns + least(o.start_ns, own_from.end_ns), 0) AS own_cover_ns
    FROM gp_touched_steps o
    ASOF LEFT JOIN covered gap_to ON gap_to.attempt = o.attempt AND o.start_ns >= gap_to.start_ns
    ASOF LEFT JOIN covered gap_from ON gap_from.attempt = o.attempt AND o.after_ns >= gap_from.start_ns
    ASOF LEFT JOIN own_covered own_to ON own_to.attempt = o.attempt AND own_to.source_id = o.source_id
        AND o.end_ns >= own_to.start_ns
    ASOF LEFT JOIN own_covered own_from ON own_from.attempt = o.attempt AND own_from.source_id = o.source_id
        AND o.start_ns >= own_from.start_ns
)
SELECT attempt, life, step, source_id, rank, grp,
    greatest(gap_ns - gap_cover_ns, 0)::BIGINT AS gap_ns,
    CASE WHEN busy_ns IS NOT NULL THEN greatest(busy_ns - own_cover_ns, 0)::BIGINT END AS busy_ns
FROM looked_up
