-- Purpose: how late the latest rank of each step was against the lower quartile of its peers.
-- Inputs:  gp_measures, gp_gap_attempts, gp_solo_attempts
-- Grain:   one row per (attempt, life, step).
-- Columns: gap_ns       the median of the ranks' own gaps
--          late_ranks   ranks whose lateness counts
--          excess_ns    greatest lateness minus the lower quartile's (the ceil(n/4)-th smallest)
--          latest_rank  the lowest of the latest; typical_late_ns  the median rank's lateness
--          half_late_ns  the least that more than half of the ranks reach
-- Algorithm: busy_ns counts if at least half of the ranks report it, and then only for them; else the gap alone (looked
--            at only in attempts where that happens). A rank alone is late against nobody.
--            The greatest lateness carries its rank with it in one number, lateness * 2^20 - rank (lateness up to
--            2^43 ns, two hours and a half: of several ranks later than that in one step the lowest counts).
CREATE OR REPLACE TEMP TABLE gp_lateness AS
WITH reduced AS (
    SELECT
        attempt, life, step,
        middle_ns(quantile_disc(gap_ns, [0.5, 0.5000000001])) AS gap_ns,
        count(*) AS ranks,
        count(late_ns) AS busy_ranks,
        max(late_ns) AS busy_top_ns,
        max(CASE WHEN late_ns IS NOT NULL THEN least(late_ns, 8796093022207) * 1048576 - rank END) AS busy_key,
        quantile_disc(late_ns, [0.25, 0.5, 0.5000000001]) AS busy_low
    FROM gp_measures
    WHERE attempt NOT IN (SELECT attempt FROM gp_solo_attempts)
    GROUP BY attempt, life, step
),
by_gap AS (
    SELECT
        attempt, life, step,
        max(gap_ns) AS gap_top_ns,
        max(least(gap_ns, 8796093022207) * 1048576 - rank) AS gap_key,
        quantile_disc(gap_ns, [0.25, 0.5, 0.5000000001]) AS gap_low
    FROM gp_measures
    WHERE attempt IN (SELECT attempt FROM gp_gap_attempts) AND attempt NOT IN (SELECT attempt FROM gp_solo_attempts)
    GROUP BY attempt, life, step
),
chosen AS (
    SELECT r.attempt, r.life, r.step, r.gap_ns,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_ranks ELSE ranks END AS late_ranks,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_top_ns ELSE gap_top_ns END AS top_ns,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_key ELSE gap_key END AS key,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_low ELSE gap_low END AS low
    FROM reduced r LEFT JOIN by_gap g ON g.attempt = r.attempt AND g.life = r.life AND g.step = r.step
)
SELECT attempt, life, step, gap_ns, late_ranks, top_ns - low[1] AS excess_ns,
    (least(top_ns, 8796093022207) * 1048576 - key)::BIGINT AS latest_rank,
    middle_ns(low[2:3]) AS typical_late_ns, low[2] AS half_late_ns
FROM chosen
UNION ALL
SELECT attempt, life, step, gap_ns, 1, 0, rank, coalesce(late_ns, gap_ns), coalesce(late_ns, gap_ns)
FROM gp_measures WHERE attempt IN (SELECT attempt FROM gp_solo_attempts)
