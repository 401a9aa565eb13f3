-- Purpose: the ranks' steps in windows whose lateness is measured apart, without what ranks did after the end.
-- Inputs:  gp_touching (the steps to look at, as gp_rank_steps), gp_bounded_segments, gp_clocks, gp_apart; $closed
-- Grain:   one row per rank and step of such a window: of those that are kept reduced ($closed), or of the others.
-- Columns: start_ns, end_ns  aligned; gap_ns  the gap before it, from after_ns; busy_ns  as told
-- Algorithm: a table of its own, so that what is joined with it in order of time is planned by its true size.
CREATE OR REPLACE TEMP TABLE gp_touched_steps AS
SELECT
    g.attempt, g.life, r.step, r.source_id, g.rank, g.grp,
    r.start_ns - k.offset_ns AS start_ns, r.end_ns - k.offset_ns AS end_ns,
    CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns,
    r.start_ns - k.offset_ns - CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS after_ns,
    r.busy_ns
FROM (SELECT * FROM gp_touching WHERE step IN (SELECT step FROM gp_apart)) r
JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
JOIN gp_apart t ON t.attempt = g.attempt AND t.life = g.life AND t.step = r.step
JOIN gp_clocks k ON k.source_id = g.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
WHERE r.end_ns - k.offset_ns <= g.until_ns AND (r.step < g.closed_below) = $closed
