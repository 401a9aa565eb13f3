-- Purpose: what each rank that is named as slow did of a step on its own.
-- Inputs:  gp_slow_steps, gp_slow_segments, gp_touched_windows, gp_touched_measures, gp_touched_closed, kept_measures
-- Grain:   one row per such rank and step.
-- Columns: gap_ns, busy_ns  as in gp_touched_measures
CREATE OR REPLACE TEMP TABLE gp_named_measures AS
SELECT o.* FROM (
    SELECT g.attempt, g.life, r.step, r.source_id, g.rank, g.grp,
        CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns, r.busy_ns
    FROM gp_slow_steps r
    JOIN gp_slow_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    WHERE NOT g.late
) o
ANTI JOIN gp_touched_windows t ON t.attempt = o.attempt AND t.life = o.life AND t.step = o.step
UNION ALL
SELECT m.attempt, m.life, m.step, m.source_id, m.rank, m.grp, m.gap_ns, m.busy_ns
FROM (FROM gp_touched_measures UNION ALL FROM gp_touched_closed) m
SEMI JOIN gp_slow_segments g ON g.attempt = m.attempt AND g.rank = m.rank
UNION ALL
SELECT g.attempt, g.life, k.step, g.source_id, g.rank, g.grp, k.gap_ns, k.busy_ns
FROM gp_slow_segments g
JOIN (SELECT * FROM kept_measures WHERE run_id = $run_id) k
    ON k.source_id = g.source_id AND k.step >= g.gone_below AND k.step < g.closed_below
WHERE g.measured AND g.life = 0
