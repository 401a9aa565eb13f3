-- Purpose: what each rank did of a step on its own.
-- Inputs:  gp_open_steps, gp_bounded_segments, gp_touched_windows, gp_touched_measures
-- Grain:   one row per rank and step that is not closed.
-- Columns: gap_ns     its gap before the step
--          late_ns    gap plus busy time, NULL where it could not be measured
CREATE OR REPLACE TEMP VIEW gp_measures AS
WITH measured AS (
    SELECT g.attempt, g.life, r.step, g.rank, g.grp,
        CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns, r.busy_ns
    FROM gp_open_steps r
    JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    ANTI JOIN gp_touched_windows t ON t.attempt = g.attempt AND t.life = g.life AND t.step = r.step
    WHERE NOT g.late AND r.step >= g.closed_below
    UNION ALL
    SELECT attempt, life, step, rank, grp, gap_ns, busy_ns FROM gp_touched_measures
)
SELECT attempt, life, step, rank, grp, gap_ns, gap_ns + busy_ns AS late_ns FROM measured
