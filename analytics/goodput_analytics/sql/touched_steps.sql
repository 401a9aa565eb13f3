-- Purpose: the ranks' steps in windows that declared spans touch, and those of attempts in which ranks went on after
--          the end, without what they did then.
-- Inputs:  gp_rank_steps, gp_windows, gp_bounded_segments, gp_clocks, gp_limits, gp_touched_windows
-- Grain:   one row per rank and step of such a window.
-- Columns: start_ns, end_ns  aligned; gap_ns  the gap before it, from after_ns; busy_ns  as told
--          closed  what is left of a step that is kept reduced
-- Algorithm: a table of its own, so that what is joined with it in order of time is planned by its true size.
CREATE OR REPLACE TEMP TABLE gp_touched_steps AS
WITH touched AS (
    SELECT attempt, life, step FROM gp_touched_windows
    UNION SELECT w.attempt, w.life, w.step FROM gp_windows w JOIN gp_limits l ON l.attempt = w.attempt AND l.late
)
SELECT
    g.attempt, g.life, r.step, r.source_id, g.rank, g.grp,
    r.start_ns - k.offset_ns AS start_ns, r.end_ns - k.offset_ns AS end_ns,
    CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns,
    r.start_ns - k.offset_ns - CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS after_ns,
    r.busy_ns, r.step < g.closed_below AS closed
FROM (SELECT * FROM gp_rank_steps WHERE step IN (SELECT step FROM touched)) r
JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
JOIN touched t ON t.attempt = g.attempt AND t.life = g.life AND t.step = r.step
JOIN gp_clocks k ON k.source_id = g.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
WHERE r.end_ns - k.offset_ns <= g.until_ns
