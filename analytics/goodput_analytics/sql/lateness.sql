-- Purpose: how late the latest rank of each step was against the lower quartile of its peers.
-- Inputs:  gp_measures
-- Grain:   one row per (attempt, life, step).
-- Columns: gap_ns       the median of the ranks' own gaps
--          late_ranks   ranks whose lateness counts
--          excess_ns    greatest lateness minus the lower quartile's (the ceil(n/4)-th smallest)
--          latest_rank  the lowest of the latest; typical_late_ns  the median rank's lateness
--          low_late_ns  the lower quartile's
-- Algorithm: busy_ns counts if at least half of the ranks report it, and then only for them; else the gap alone.
--            The greatest lateness carries its rank with it in one number: lateness * 2^40 - rank.
CREATE OR REPLACE TEMP TABLE gp_lateness AS
WITH reduced AS (
    SELECT
        attempt, life, step,
        floor(median(gap_ns))::BIGINT AS gap_ns,
        count(*) AS ranks,
        count(late_ns) AS busy_ranks,
        max(late_ns::HUGEINT * 1099511627776 - rank) AS busy_top,
        quantile_disc(late_ns, 0.25) AS busy_low_ns,
        floor(median(late_ns))::BIGINT AS busy_typical_ns,
        max(late_gap_ns::HUGEINT * 1099511627776 - rank) AS gap_top,
        quantile_disc(late_gap_ns, 0.25) AS gap_low_ns,
        floor(median(late_gap_ns))::BIGINT AS gap_typical_ns
    FROM gp_measures
    GROUP BY attempt, life, step
),
chosen AS (
    SELECT attempt, life, step, gap_ns,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_ranks ELSE ranks END AS late_ranks,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_top ELSE gap_top END AS top,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_low_ns ELSE gap_low_ns END AS low_late_ns,
        CASE WHEN 2 * busy_ranks >= ranks THEN busy_typical_ns ELSE gap_typical_ns END AS typical_late_ns
    FROM reduced
),
decoded AS (
    SELECT *, ((top + 1099511627775) // 1099511627776)::BIGINT AS greatest_ns FROM chosen
)
SELECT attempt, life, step, gap_ns, late_ranks, greatest_ns - low_late_ns AS excess_ns,
    (greatest_ns::HUGEINT * 1099511627776 - top)::BIGINT AS latest_rank, typical_late_ns, low_late_ns
FROM decoded
