-- Purpose: the ranks that can be named as slow.
-- Inputs:  gp_portions
-- Grain:   one row per (attempt, rank): those that were the latest too often for chance.
-- Columns: slowest_steps  windows in which it was the latest (k)
-- Algorithm: k of the s kept windows with a straggler part, n ranks reporting: k >= 5 and
--            k > s/n + 3 * sqrt(s/n * (1 - 1/n)).
CREATE OR REPLACE TEMP TABLE gp_named_ranks AS
WITH straggled AS (
    SELECT attempt, idx, any_value(latest_rank) AS rank, max(late_ranks) AS late_ranks
    FROM gp_portions WHERE kept AND applied AND straggler_ns > 0 GROUP BY attempt, idx
),
totals AS (
    SELECT attempt, count(*)::DOUBLE AS s, max(late_ranks)::DOUBLE AS n FROM straggled GROUP BY attempt
),
counts AS (
    SELECT attempt, rank, count(*) AS slowest_steps FROM straggled GROUP BY attempt, rank
)
SELECT c.attempt, c.rank, c.slowest_steps
FROM counts c JOIN totals t USING (attempt)
WHERE c.slowest_steps >= 5 AND c.slowest_steps > t.s / t.n + 3 * sqrt(t.s / t.n * (1 - 1 / t.n))
