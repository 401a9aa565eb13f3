-- Purpose: the ledger reduced to what a screen can show: how the GPUs were used, stretch by stretch.
-- Inputs:  gp_ledger; $from_ns, $to_ns (NULL: the ledger's own ends), $most
-- Grain:   one row per (stretch, category) that has any GPU time; at most $most stretches of equal length.
-- Columns: start_ns, end_ns   the stretch
--          category
--          gpu_s              GPU-seconds; over all rows they add up to what the ledger has between the two ends
--          gpus               the same per second of the stretch: how many GPUs on average
--          share_ratio        the same over all GPU time of the stretch
-- Algorithm: an entry that lies in one stretch counts there; one that lies in several is cut at their borders.
WITH ends AS (
    SELECT greatest($from_ns::BIGINT, min(start_ns)) AS from_ns, least($to_ns::BIGINT, max(end_ns)) AS to_ns FROM gp_ledger
),
grid AS (
    SELECT from_ns, to_ns, greatest((to_ns - from_ns + $most::BIGINT - 1) // $most::BIGINT, 1) AS width_ns
    FROM ends WHERE to_ns > from_ns
),
clipped AS (
    SELECT l.category, l.gpus, greatest(l.start_ns, g.from_ns) AS start_ns, least(l.end_ns, g.to_ns) AS end_ns,
        g.from_ns, g.width_ns
    FROM gp_ledger l JOIN grid g ON l.end_ns > g.from_ns AND l.start_ns < g.to_ns
    WHERE l.end_ns > l.start_ns
),
placed AS (
    SELECT *, (start_ns - from_ns) // width_ns AS first, (end_ns - 1 - from_ns) // width_ns AS last FROM clipped
),
cut AS (
    SELECT category, gpus, first AS cell, start_ns, end_ns FROM placed WHERE first = last
    UNION ALL
    SELECT category, gpus, cell, greatest(start_ns, from_ns + cell * width_ns), least(end_ns, from_ns + (cell + 1) * width_ns)
    FROM (SELECT *, unnest(range(first, last + 1)) AS cell FROM placed WHERE first < last)
),
summed AS (
    SELECT cell, category, sum((end_ns - start_ns)::HUGEINT * gpus)::DOUBLE / 1e9 AS gpu_s FROM cut GROUP BY cell, category
)
SELECT
    g.from_ns + s.cell * g.width_ns AS start_ns,
    least(g.from_ns + (s.cell + 1) * g.width_ns, g.to_ns) AS end_ns,
    s.category::VARCHAR AS category,
    s.gpu_s,
    s.gpu_s / ((least(g.from_ns + (s.cell + 1) * g.width_ns, g.to_ns) - g.from_ns - s.cell * g.width_ns) / 1e9) AS gpus,
    s.gpu_s / sum(s.gpu_s) OVER (PARTITION BY s.cell) AS share_ratio
FROM summed s CROSS JOIN grid g
ORDER BY start_ns, s.category
