-- Purpose: how much later than its median peer each rank was over time, reduced to what a screen can show.
-- Inputs:  gp_window_parts, gp_measures; $from_ns, $to_ns (NULL: all steps), $most, $most_rows, $most_steps
-- Grain:   one row per (stretch, rank), or per (stretch, ranks that lie side by side) where there are more than
--          $most_rows ranks; at most $most stretches of equal length.
-- Columns: start_ns, end_ns       the stretch
--          first_rank, last_rank  the ranks of the row
--          late_s                 seconds per step later than the median rank, on average over the steps looked at; of
--                                 several ranks the latest. Negative: earlier than the median rank
--          steps                  steps looked at
-- Algorithm: of all steps every k-th is looked at, with k such that they are no more than $most_steps. Own work counts
--            where at least half of the ranks tell it, else the gap between steps, as in lateness.sql.
WITH windows AS (
    SELECT attempt, life, step, begin_ns, end_ns, typical_late_ns, 2 * busy_ranks >= ranks AS busy,
        row_number() OVER (ORDER BY begin_ns, attempt, life, step) - 1 AS number, count(*) OVER () AS windows
    FROM gp_window_parts
    WHERE ranks > 1 AND applied AND coalesce(end_ns > $from_ns::BIGINT, true) AND coalesce(begin_ns < $to_ns::BIGINT, true)
),
ends AS (
    SELECT greatest($from_ns::BIGINT, min(begin_ns)) AS from_ns, least($to_ns::BIGINT, max(end_ns)) AS to_ns FROM windows
),
grid AS (
    SELECT from_ns, to_ns, greatest((to_ns - from_ns + $most::BIGINT - 1) // $most::BIGINT, 1) AS width_ns
    FROM ends WHERE to_ns > from_ns
),
sampled AS (
    SELECT w.*, (greatest(w.begin_ns, g.from_ns) - g.from_ns) // g.width_ns AS cell
    FROM windows w CROSS JOIN grid g
    WHERE w.number % greatest((w.windows + $most_steps::BIGINT - 1) // $most_steps::BIGINT, 1) = 0
),
told AS (
    SELECT s.cell, s.number, m.rank, CASE WHEN s.busy THEN m.late_ns ELSE m.gap_ns END - s.typical_late_ns AS late_ns
    FROM gp_measures m JOIN sampled s ON s.attempt = m.attempt AND s.life = m.life AND s.step = m.step
),
by_rank AS (
    SELECT cell, rank, avg(late_ns) AS late_ns, count(late_ns) AS steps FROM told
    WHERE late_ns IS NOT NULL GROUP BY cell, rank
),
rows AS (
    SELECT greatest((max(rank) + $most_rows::BIGINT) // $most_rows::BIGINT, 1) AS height FROM by_rank
)
SELECT
    g.from_ns + b.cell * g.width_ns AS start_ns,
    least(g.from_ns + (b.cell + 1) * g.width_ns, g.to_ns) AS end_ns,
    min(b.rank) AS first_rank, max(b.rank) AS last_rank,
    max(b.late_ns) / 1e9 AS late_s, max(b.steps)::BIGINT AS steps
FROM by_rank b CROSS JOIN grid g CROSS JOIN rows r
GROUP BY b.cell, b.rank // r.height, g.from_ns, g.to_ns, g.width_ns
ORDER BY start_ns, first_rank
