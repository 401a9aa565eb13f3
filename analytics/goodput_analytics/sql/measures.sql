-- Purpose: what each rank did of a step on its own.
-- Inputs:  gp_rank_gaps, gp_segments, gp_limits, gp_touched_windows, gp_touched_measures, gp_gap_attempts
-- Grain:   one row per rank and step.
-- Columns: gap_ns     its gap before the step
--          late_ns    gap plus busy time, NULL where it could not be measured
--          late_gap_ns  the gap, where an attempt has steps in which too few ranks measured, else NULL
CREATE OR REPLACE TEMP VIEW gp_measures AS
WITH measured AS (
    SELECT g.attempt, g.life, r.step, g.rank, g.grp,
        CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns, r.busy_ns
    FROM gp_rank_gaps r
    JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    JOIN gp_limits l ON l.attempt = g.attempt
    ANTI JOIN gp_touched_windows t ON t.attempt = g.attempt AND t.life = g.life AND t.step = r.step
    WHERE NOT l.late
    UNION ALL
    SELECT attempt, life, step, rank, grp, gap_ns, busy_ns FROM gp_touched_measures
)
SELECT m.attempt, m.life, m.step, m.rank, m.grp, m.gap_ns, m.gap_ns + m.busy_ns AS late_ns,
    CASE WHEN n.attempt IS NOT NULL THEN m.gap_ns END AS late_gap_ns
FROM measured m LEFT JOIN gp_gap_attempts n ON n.attempt = m.attempt
