-- Purpose: the work that would have been lost had the run died then, over time.
-- Inputs:  gp_ledger, gp_saves, gp_incidents; $from_ns, $to_ns (NULL: the ledger's own ends), $most
-- Grain:   one row per stretch of equal length, at most $most. None for a run without a durable save: nobody knows.
-- Columns: start_ns, end_ns; at_risk_gpu_s   at the end of the stretch
-- Algorithm: work done, kept or later thrown away, since the newest save that was durable by then began, or since the
--            last abort; to the width of a stretch.
WITH ends AS (
    SELECT min(start_ns) AS least_ns, greatest($from_ns::BIGINT, min(start_ns)) AS from_ns,
        least($to_ns::BIGINT, max(end_ns)) AS to_ns
    FROM gp_ledger
),
grid AS (
    SELECT from_ns, to_ns, greatest((to_ns - from_ns + $most::BIGINT - 1) // $most::BIGINT, 1) AS width_ns
    FROM ends WHERE to_ns > from_ns AND EXISTS (SELECT 1 FROM gp_saves WHERE durable_ns IS NOT NULL)
),
stretches AS (
    SELECT from_ns + cell * width_ns AS start_ns, least(from_ns + (cell + 1) * width_ns, to_ns) AS end_ns
    FROM (SELECT *, unnest(range(0, (to_ns - from_ns + width_ns - 1) // width_ns)) AS cell FROM grid)
),
marks AS (
    SELECT durable_ns AS known_ns, begin_ns AS since_ns FROM gp_saves WHERE durable_ns IS NOT NULL AND begin_ns IS NOT NULL
    UNION ALL
    SELECT abort_ns, abort_ns FROM gp_incidents
    UNION ALL
    SELECT least_ns, least_ns FROM ends
),
known AS (
    SELECT known_ns, max(since_ns) OVER (ORDER BY known_ns, since_ns ROWS UNBOUNDED PRECEDING) AS since_ns FROM marks
),
asked AS (
    SELECT s.start_ns, s.end_ns, k.since_ns, g.from_ns, g.width_ns
    FROM stretches s ASOF LEFT JOIN known k ON s.end_ns >= k.known_ns CROSS JOIN grid g
),
work AS (
    SELECT (l.end_ns - g.from_ns) // g.width_ns AS cell, sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus) AS gpu_ns
    FROM gp_ledger l CROSS JOIN grid g
    WHERE l.category IN ('productive', 'rework') AND l.place = 'steps' AND l.end_ns > l.start_ns
    GROUP BY ALL
),
done AS (
    SELECT cell, sum(gpu_ns) OVER (ORDER BY cell ROWS UNBOUNDED PRECEDING) AS done_gpu_ns FROM work
)
SELECT a.start_ns, a.end_ns,
    greatest(coalesce(w.done_gpu_ns, 0) - coalesce(v.done_gpu_ns, 0), 0)::DOUBLE / 1e9 AS at_risk_gpu_s
FROM asked a
ASOF LEFT JOIN done w ON (a.end_ns - a.from_ns) // a.width_ns >= w.cell
ASOF LEFT JOIN done v ON (a.since_ns - a.from_ns) // a.width_ns >= v.cell
ORDER BY a.start_ns
