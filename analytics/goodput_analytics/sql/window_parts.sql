-- Purpose: what each window's time was, before anybody asks whether it was kept.
-- Inputs:  gp_window_times, gp_window_covers, gp_lateness, gp_lateness_grouped; $hang_floor_ns, $expected_step_ns
-- Grain:   one row per (attempt, idx).
-- Columns: net_ns      the window without declared spans; it is the sum of the seven that follow
--          warmup_ns   the first window's excess over a typical one
--          data_ns     the median rank waited for input
--          gap_ns      the median rank was between steps and said nothing
--          hang_ns     beyond what such a step takes
--          straggler_ns  the latest rank against the lower quartile
--          over_ns     beyond the expected step time, if there is one
--          productive_ns  the rest
--          covered     declared spans lie in the window
-- Algorithm: each part is no larger than what is left. A typical window is the median per step of the attempt's next
--            25 (of all the run's where it has none). A typical rest is the median of the up to 25 before and 25 after,
--            the first window and itself left out. That costs a look at 50 rows, so it is taken only where a hang is
--            possible: the least rest around bounds the median from below.
CREATE OR REPLACE TEMP TABLE gp_window_parts AS
WITH covered AS (
    SELECT attempt, idx, sum(end_ns - start_ns)::BIGINT AS covered_ns FROM gp_window_covers GROUP BY attempt, idx
),
net AS NOT MATERIALIZED (
    SELECT w.*, w.end_ns - w.begin_ns - coalesce(v.covered_ns, 0) AS net_ns, v.covered_ns IS NOT NULL AS covered
    FROM gp_window_times w LEFT JOIN covered v ON v.attempt = w.attempt AND v.idx = w.idx
),
run_typical AS (
    SELECT middle_ns(quantile_disc(net_ns // c, [0.5, 0.5000000001])) AS typical_ns FROM net WHERE idx > 0
),
next_typical AS (
    SELECT attempt, middle_ns(quantile_disc(net_ns // c, [0.5, 0.5000000001])) AS typical_ns FROM net WHERE idx BETWEEN 1 AND 25 GROUP BY attempt
),
warm AS (
    SELECT n.*,
        CASE WHEN n.idx = 0 THEN greatest(n.net_ns - n.c::HUGEINT * coalesce(t.typical_ns, r.typical_ns, n.net_ns), 0)::BIGINT ELSE 0 END
            AS warmup_ns
    FROM net n LEFT JOIN next_typical t ON t.attempt = n.attempt AND n.idx = 0 CROSS JOIN run_typical r
),
late AS (
    SELECT
        w.attempt, w.life, w.idx, w.step, w.c, w.missing, w.begin_ns, w.end_ns, w.start_ns, w.net_ns, w.covered,
        w.applied, w.ranks, w.busy_ranks, w.new_life, w.warmup_ns,
        least(coalesce(w.data_ns, 0), w.net_ns - w.warmup_ns) AS data_ns, l.gap_ns AS told_gap_ns,
        coalesce(x.late_ranks, l.late_ranks) AS late_ranks, coalesce(x.excess_ns, l.excess_ns) AS excess_ns,
        coalesce(x.latest_rank, l.latest_rank) AS latest_rank,
        coalesce(x.typical_late_ns, l.typical_late_ns) AS typical_late_ns, l.half_late_ns
    FROM warm w
    LEFT JOIN gp_lateness l ON l.attempt = w.attempt AND l.life = w.life AND l.step = w.step
    LEFT JOIN gp_lateness_grouped x ON x.attempt = w.attempt AND x.life = w.life AND x.step = w.step
),
gaps AS (
    SELECT *, least(coalesce(told_gap_ns, 0), net_ns - warmup_ns - data_ns) AS gap_ns FROM late
),
rests AS NOT MATERIALIZED (
    SELECT *, net_ns - warmup_ns - data_ns - gap_ns AS rest_ns FROM gaps
),
suspect_attempts AS (
    SELECT attempt, max(idx) <= 1 AS alone FROM rests GROUP BY attempt HAVING max(rest_ns) > $hang_floor_ns
),
around AS (
    SELECT r.attempt, r.idx, r.c, r.rest_ns, s.alone,
        min(CASE WHEN r.idx > 0 THEN r.rest_ns // r.c END) OVER (
            PARTITION BY r.attempt ORDER BY r.idx ROWS BETWEEN 25 PRECEDING AND 25 FOLLOWING) AS least_ns
    FROM rests r JOIN suspect_attempts s ON s.attempt = r.attempt
),
suspects AS (
    SELECT * FROM around
    WHERE rest_ns > $hang_floor_ns AND (alone OR rest_ns > (c + 2)::HUGEINT * least_ns)
),
typicals AS (
    SELECT s.attempt, s.idx, middle_ns(quantile_disc(r.rest_ns // r.c, [0.5, 0.5000000001])) AS typical_ns
    FROM suspects s JOIN rests r ON r.attempt = s.attempt AND r.idx BETWEEN s.idx - 25 AND s.idx + 25
        AND r.idx <> s.idx AND r.idx > 0
    GROUP BY s.attempt, s.idx
),
run_rest AS (
    SELECT middle_ns(quantile_disc(rest_ns // c, [0.5, 0.5000000001])) AS typical_ns FROM rests
    WHERE idx > 0 AND EXISTS (SELECT 1 FROM suspects)
),
hangs AS (
    SELECT s.attempt, s.idx, (s.rest_ns - s.c::HUGEINT * coalesce(t.typical_ns, r.typical_ns))::BIGINT AS hang_ns
    FROM suspects s LEFT JOIN typicals t ON t.attempt = s.attempt AND t.idx = s.idx CROSS JOIN run_rest r
    WHERE s.rest_ns > (s.c - 1)::HUGEINT * coalesce(t.typical_ns, r.typical_ns)
        + greatest($hang_floor_ns, 3 * coalesce(t.typical_ns, r.typical_ns))
),
hung AS (
    SELECT r.*, coalesce(h.hang_ns, 0) AS hang_ns
    FROM rests r LEFT JOIN hangs h ON h.attempt = r.attempt AND h.idx = r.idx
),
straggled AS (
    SELECT *, least(greatest(coalesce(excess_ns, 0), 0), rest_ns - hang_ns) AS straggler_ns FROM hung
),
overs AS (
    SELECT *, greatest(rest_ns - hang_ns - straggler_ns - c::HUGEINT * coalesce($expected_step_ns, rest_ns), 0)::BIGINT AS over_ns
    FROM straggled
)
SELECT attempt, life, idx, step, c, missing, begin_ns, end_ns, start_ns, covered, applied, ranks, busy_ranks, new_life,
    net_ns, warmup_ns, data_ns, gap_ns, hang_ns, straggler_ns, over_ns,
    rest_ns - hang_ns - straggler_ns - over_ns AS productive_ns,
    late_ranks, latest_rank, typical_late_ns, half_late_ns
FROM overs
