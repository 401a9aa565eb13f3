-- Purpose: how late the latest rank of each step was against the lower quartile of its peers.
-- Inputs:  gp_windows, gp_life_names, gp_apart, gp_touched_measures, gp_measures, gp_gap_attempts,
--          gp_bounded_segments, kept_steps
-- Grain:   one row per (attempt, life, step).
-- Columns: gap_ns       the median of the ranks' own gaps
--          late_ranks   ranks whose lateness counts
--          excess_ns    greatest lateness minus the lower quartile's (the ceil(n/4)-th smallest)
--          latest_rank  the lowest of the latest; typical_late_ns  the median rank's lateness
--          half_late_ns  the least that more than half of the ranks reach
-- Algorithm: busy_ns counts if at least half of the ranks report it, and then only for them; else the gap alone (looked
--            at only in attempts where that happens). A rank alone is late against nobody.
--            What gp_windows says of a step holds where no declared span touches it and no rank went on after the end;
--            else it is reduced again from what was measured beside the spans. Whose the greatest lateness is: late_key.
CREATE OR REPLACE TEMP TABLE gp_lateness AS
WITH reduced AS (
    SELECT w.attempt, w.life, w.step, w.gap_ns, w.ranks, w.busy_ranks, w.busy_key, w.busy_low
    FROM gp_windows w
    ANTI JOIN gp_apart t ON t.attempt = w.attempt AND t.life = w.life AND t.step = w.step
    WHERE NOT w.closed AND w.attempt NOT IN (SELECT attempt FROM gp_life_names WHERE alone)
    UNION ALL
    SELECT attempt, life, step,
        middle_ns(quantile_disc(gap_ns, [0.5, 0.5000000001])), count(*), count(busy_ns),
        max(late_key(gap_ns + busy_ns, rank)), quantile_disc(gap_ns + busy_ns, [0.25, 0.5, 0.5000000001, 1.0])
    FROM gp_touched_measures
    WHERE attempt NOT IN (SELECT attempt FROM gp_life_names WHERE alone)
    GROUP BY attempt, life, step
),
by_gap AS (
    SELECT
        attempt, life, step,
        max(late_key(gap_ns, rank)) AS gap_key,
        quantile_disc(gap_ns, [0.25, 0.5, 0.5000000001, 1.0]) AS gap_low
    FROM gp_measures
    WHERE attempt IN (SELECT attempt FROM gp_gap_attempts)
    GROUP BY attempt, life, step
),
chosen AS (
    SELECT r.attempt, r.life, r.step, r.gap_ns,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_ranks ELSE ranks END AS late_ranks,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_key ELSE gap_key END AS key,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_low ELSE gap_low END AS low
    FROM reduced r LEFT JOIN by_gap g ON g.attempt = r.attempt AND g.life = r.life AND g.step = r.step
)
SELECT attempt, life, step, gap_ns, late_ranks, low[4] - low[1] AS excess_ns,
    (least(low[4], 8796093022207) * 1048576 - key)::BIGINT AS latest_rank,
    middle_ns(low[2:3]) AS typical_late_ns, low[2] AS half_late_ns
FROM chosen
UNION ALL
SELECT attempt, life, step, gap_ns, 1, 0, rank, coalesce(late_ns, gap_ns), coalesce(late_ns, gap_ns)
FROM gp_measures
WHERE attempt IN (SELECT attempt FROM gp_life_names WHERE alone)
UNION ALL
SELECT g.attempt, g.life, k.step, k.late_gap_ns, k.late_ranks, k.excess_ns, k.latest_rank, k.typical_late_ns, k.half_late_ns
FROM kept_steps k
JOIN gp_bounded_segments g ON g.source_id = k.source_id AND g.life = 0 AND g.from_seq = -1 AND k.step < g.closed_below
WHERE k.late_ranks IS NOT NULL
