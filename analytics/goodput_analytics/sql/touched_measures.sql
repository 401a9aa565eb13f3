-- Purpose: the ranks' gaps and busy times in windows that declared spans touch, less what those spans cover; and of
--          attempts in which ranks went on after the end, without what they did then.
-- Inputs:  gp_rank_steps, gp_rank_gaps, gp_windows, gp_segments, gp_clocks, gp_limits, gp_touched_windows, gp_covers, gp_own_spans
-- Grain:   one row per rank and step of a touched window.
-- Columns: gap_ns   less what any rank's span covers of it
--          busy_ns  less what the rank's own spans cover inside the step
-- Algorithm: covers exclude one another, so what they take of an interval is what they take up to its end, less what they
--            take up to its beginning: a running sum, looked up twice.
CREATE OR REPLACE TEMP TABLE gp_touched_measures AS
WITH touched AS (
    SELECT attempt, life, step FROM gp_touched_windows
    UNION SELECT w.attempt, w.life, w.step FROM gp_windows w JOIN gp_limits l ON l.attempt = w.attempt AND l.late
),
own_steps AS MATERIALIZED (
    SELECT
        g.attempt, g.life, r.step, r.source_id, r.seq, g.rank, g.grp,
        r.start_ns - k.offset_ns AS start_ns, r.end_ns - k.offset_ns AS end_ns,
        CASE WHEN r.seq = g.first_seq THEN 0 ELSE b.gap_ns END AS gap_ns, r.busy_ns
    FROM gp_rank_steps r
    JOIN gp_rank_gaps b ON b.source_id = r.source_id AND b.seq = r.seq
    JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    JOIN touched t ON t.attempt = g.attempt AND t.life = g.life AND t.step = r.step
    JOIN gp_clocks k ON k.source_id = g.source_id AND k.attempt = g.attempt AND k.life = g.life
        AND k.block = r.step // 1000
    JOIN gp_limits l ON l.attempt = g.attempt
    WHERE r.end_ns - k.offset_ns <= l.until_ns
),
covered AS (
    SELECT attempt, start_ns, end_ns,
        sum(end_ns - start_ns) OVER (PARTITION BY attempt ORDER BY start_ns) - (end_ns - start_ns) AS before_ns
    FROM gp_covers WHERE NOT restart
),
own_covered AS (
    SELECT attempt, source_id, begin_ns AS start_ns, end_ns,
        sum(end_ns - begin_ns) OVER (PARTITION BY attempt, source_id ORDER BY begin_ns) - (end_ns - begin_ns) AS before_ns
    FROM gp_own_spans
),
gaps AS (
    SELECT attempt, source_id, seq, start_ns - gap_ns AS from_ns, start_ns AS to_ns FROM own_steps
    WHERE gap_ns > 0 AND attempt IN (SELECT attempt FROM covered)
),
gap_cover AS (
    SELECT g.source_id, g.seq,
        (coalesce(t.before_ns + least(g.to_ns, t.end_ns) - t.start_ns, 0)
            - coalesce(f.before_ns + least(g.from_ns, f.end_ns) - f.start_ns, 0))::BIGINT AS cover_ns
    FROM gaps g
    ASOF LEFT JOIN covered t ON t.attempt = g.attempt AND g.to_ns >= t.start_ns
    ASOF LEFT JOIN covered f ON f.attempt = g.attempt AND g.from_ns >= f.start_ns
),
own_cover AS (
    SELECT o.source_id, o.seq,
        (coalesce(t.before_ns + least(o.end_ns, t.end_ns) - t.start_ns, 0)
            - coalesce(f.before_ns + least(o.start_ns, f.end_ns) - f.start_ns, 0))::BIGINT AS cover_ns
    FROM own_steps o
    ASOF LEFT JOIN own_covered t ON t.attempt = o.attempt AND t.source_id = o.source_id AND o.end_ns >= t.start_ns
    ASOF LEFT JOIN own_covered f ON f.attempt = o.attempt AND f.source_id = o.source_id AND o.start_ns >= f.start_ns
    WHERE o.busy_ns IS NOT NULL
)
SELECT
    o.attempt, o.life, o.step, o.rank, o.grp,
    greatest(o.gap_ns - coalesce(g.cover_ns, 0), 0) AS gap_ns,
    greatest(o.busy_ns - coalesce(w.cover_ns, 0), CASE WHEN o.busy_ns IS NOT NULL THEN 0 END) AS busy_ns
FROM own_steps o
LEFT JOIN gap_cover g ON g.source_id = o.source_id AND g.seq = o.seq
LEFT JOIN own_cover w ON w.source_id = o.source_id AND w.seq = o.seq
