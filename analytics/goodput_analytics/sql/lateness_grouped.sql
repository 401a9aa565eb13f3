-- Purpose: lateness where ranks do different work by design: each rank against its own group's lower quartile.
-- Inputs:  gp_measures, gp_grouped_attempts, gp_bounded_segments, kept_steps
-- Grain:   one row per (attempt, life, step) of an attempt whose ranks told groups.
-- Columns: as gp_lateness, but the greatest excess counts, not the greatest lateness
CREATE OR REPLACE TEMP TABLE gp_lateness_grouped AS
WITH counting AS (
    SELECT attempt, life, step, 2 * count(late_ns) >= count(*) AS busy_counts
    FROM gp_measures JOIN gp_grouped_attempts USING (attempt)
    GROUP BY attempt, life, step
),
late AS (
    SELECT m.attempt, m.life, m.step, m.rank, coalesce(m.grp, '') AS grp,
        CASE WHEN c.busy_counts THEN m.late_ns ELSE m.gap_ns END AS late_ns
    FROM gp_measures m JOIN counting c USING (attempt, life, step)
),
low AS (
    SELECT attempt, life, step, grp, quantile_disc(late_ns, 0.25) AS low_ns, middle_ns(quantile_disc(late_ns, [0.5, 0.5000000001])) AS typical_ns
    FROM late WHERE late_ns IS NOT NULL
    GROUP BY attempt, life, step, grp
),
held AS (
    SELECT l.*, l.late_ns - w.low_ns AS excess_ns, w.low_ns, w.typical_ns
    FROM late l JOIN low w USING (attempt, life, step, grp)
    WHERE l.late_ns IS NOT NULL
),
latest AS (
    SELECT * FROM held
    QUALIFY row_number() OVER (PARTITION BY attempt, life, step ORDER BY excess_ns DESC, rank) = 1
),
sizes AS (
    SELECT attempt, life, step, count(*) AS late_ranks FROM held GROUP BY attempt, life, step
)
SELECT t.attempt, t.life, t.step, s.late_ranks, t.excess_ns, t.rank AS latest_rank, t.typical_ns AS typical_late_ns
FROM latest t JOIN sizes s USING (attempt, life, step)
UNION ALL
SELECT g.attempt, g.life, k.step, k.own_late_ranks, k.own_excess_ns, k.own_latest_rank, k.own_typical_late_ns
FROM kept_steps k
JOIN gp_bounded_segments g ON g.source_id = k.source_id AND g.life = 0 AND g.from_seq = -1 AND k.step < g.closed_below
WHERE k.own_late_ranks IS NOT NULL
