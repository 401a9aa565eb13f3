-- Purpose: how late the latest rank of each step was against the lower quartile of its peers.
-- Inputs:  gp_rank_steps, gp_bounded_segments, gp_life_names, gp_touched_windows, gp_touched_measures, gp_measures,
--          gp_gap_attempts
-- Grain:   one row per (attempt, life, step).
-- Columns: gap_ns       the median of the ranks' own gaps
--          late_ranks   ranks whose lateness counts
--          excess_ns    greatest lateness minus the lower quartile's (the ceil(n/4)-th smallest)
--          latest_rank  the lowest of the latest; typical_late_ns  the median rank's lateness
--          half_late_ns  the least that more than half of the ranks reach
-- Algorithm: busy_ns counts if at least half of the ranks report it, and then only for them; else the gap alone (looked
--            at only in attempts where that happens). A rank alone is late against nobody.
--            Steps that declared spans touch are reduced twice, and only what was measured beside the spans counts.
--            The greatest lateness carries its rank with it in one number, lateness * 2^20 - rank (lateness up to
--            2^43 ns, two hours and a half: of several ranks later than that in one step the lowest counts).
CREATE OR REPLACE TEMP TABLE gp_lateness AS
WITH told AS (
    SELECT g.life_id, r.step, false AS touched, g.rank,
        CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns, r.busy_ns
    FROM gp_rank_steps r
    JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    WHERE NOT g.late AND NOT g.alone
    UNION ALL
    SELECT n.life_id, m.step, true, m.rank, m.gap_ns, m.busy_ns
    FROM gp_touched_measures m JOIN gp_life_names n ON n.attempt = m.attempt AND n.life = m.life
    WHERE NOT n.alone
),
reduced AS (
    SELECT
        life_id, step, touched,
        middle_ns(quantile_disc(gap_ns, [0.5, 0.5000000001])) AS gap_ns,
        count(*) AS ranks,
        count(busy_ns) AS busy_ranks,
        max(CASE WHEN gap_ns + busy_ns > 8796093022207 THEN 8796093022207 ELSE gap_ns + busy_ns END * 1048576 - rank) AS busy_key,
        quantile_disc(gap_ns + busy_ns, [0.25, 0.5, 0.5000000001, 1.0]) AS busy_low
    FROM told
    GROUP BY life_id, step, touched
),
named AS (
    SELECT n.attempt, n.life, d.* EXCLUDE (life_id)
    FROM reduced d JOIN gp_life_names n ON n.life_id = d.life_id
    LEFT JOIN gp_touched_windows t ON t.attempt = n.attempt AND t.life = n.life AND t.step = d.step
    WHERE d.touched OR t.step IS NULL
),
by_gap AS (
    SELECT
        attempt, life, step,
        max(least(gap_ns, 8796093022207) * 1048576 - rank) AS gap_key,
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
    FROM named r LEFT JOIN by_gap g ON g.attempt = r.attempt AND g.life = r.life AND g.step = r.step
)
SELECT attempt, life, step, gap_ns, late_ranks, low[4] - low[1] AS excess_ns,
    (least(low[4], 8796093022207) * 1048576 - key)::BIGINT AS latest_rank,
    middle_ns(low[2:3]) AS typical_late_ns, low[2] AS half_late_ns
FROM chosen
UNION ALL
SELECT attempt, life, step, gap_ns, 1, 0, rank, coalesce(late_ns, gap_ns), coalesce(late_ns, gap_ns)
FROM gp_measures
WHERE attempt IN (SELECT attempt FROM gp_life_names WHERE alone)
