-- Purpose: the ranks' gaps and busy times in windows that declared spans touch, less what those spans cover; and of
--          attempts in which ranks went on after the end, without what they did then.
-- Inputs:  gp_rank_steps, gp_rank_gaps, gp_windows, gp_segments, gp_clocks, gp_limits, gp_touched_windows, gp_covers, gp_own_spans
-- Grain:   one row per rank and step of a touched window.
-- Columns: gap_ns   less what any rank's span covers of it
--          busy_ns  less what the rank's own spans cover inside the step
CREATE OR REPLACE TEMP TABLE gp_touched_measures AS
WITH touched AS (
    SELECT attempt, life, step FROM gp_touched_windows
    UNION SELECT w.attempt, w.life, w.step FROM gp_windows w JOIN gp_limits l ON l.attempt = w.attempt AND l.late
),
own_steps AS (
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
gap_cover AS (
    SELECT o.source_id, o.seq,
        sum(least(c.end_ns, o.start_ns) - greatest(c.start_ns, o.start_ns - o.gap_ns))::BIGINT AS cover_ns
    FROM own_steps o JOIN gp_covers c
        ON c.attempt = o.attempt AND c.start_ns < o.start_ns AND c.end_ns > o.start_ns - o.gap_ns
    WHERE o.gap_ns > 0 AND NOT c.restart
    GROUP BY o.source_id, o.seq
),
own_cover AS (
    SELECT o.source_id, o.seq, sum(least(s.end_ns, o.end_ns) - greatest(s.begin_ns, o.start_ns))::BIGINT AS cover_ns
    FROM own_steps o JOIN gp_own_spans s
        ON s.attempt = o.attempt AND s.source_id = o.source_id AND s.begin_ns < o.end_ns AND s.end_ns > o.start_ns
    GROUP BY o.source_id, o.seq
)
SELECT
    o.attempt, o.life, o.step, o.rank, o.grp,
    greatest(o.gap_ns - coalesce(g.cover_ns, 0), 0) AS gap_ns,
    greatest(o.busy_ns - coalesce(w.cover_ns, 0), CASE WHEN o.busy_ns IS NOT NULL THEN 0 END) AS busy_ns
FROM own_steps o
LEFT JOIN gap_cover g ON g.source_id = o.source_id AND g.seq = o.seq
LEFT JOIN own_cover w ON w.source_id = o.source_id AND w.seq = o.seq
