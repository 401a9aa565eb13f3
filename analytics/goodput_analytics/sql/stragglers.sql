-- Purpose: the ranks that were named as slow, and what that cost.
-- Inputs:  gp_named_ranks, gp_named_measures, gp_ledger, gp_members, gp_bounded_segments, gp_measures, gp_window_parts,
--          gp_grouped_attempts, kept_groups
-- Grain:   one row per (rank, node).
-- Columns: loss_gpu_ns     straggler time of the steps in which it was the latest
--          slowest_steps   how many they were
--          slowdown_ratio  the median over its steps of its lateness over the median rank's (with groups: the median
--                          of its own group), NULL where that is 0
CREATE OR REPLACE TEMP TABLE gp_stragglers AS
WITH nodes AS (
    SELECT attempt, rank, min(node) AS node FROM gp_members GROUP BY attempt, rank
),
losses AS (
    SELECT l.attempt, l.latest_rank AS rank, sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus) AS gpu_ns
    FROM gp_ledger l WHERE l.category = 'straggler' AND l.phase = 'rank' GROUP BY l.attempt, l.latest_rank
),
groups AS (
    SELECT m.attempt, m.life, m.step, m.grp, middle_ns(quantile_disc(
        CASE WHEN 2 * w.busy_ranks >= w.ranks THEN m.late_ns ELSE m.gap_ns END, [0.5, 0.5000000001])) AS typical_late_ns
    FROM gp_measures m
    JOIN gp_window_parts w ON w.attempt = m.attempt AND w.life = m.life AND w.step = m.step
    WHERE m.attempt IN (SELECT attempt FROM gp_grouped_attempts) AND m.attempt IN (SELECT attempt FROM gp_named_ranks)
    GROUP BY m.attempt, m.life, m.step, m.grp
    UNION ALL
    SELECT g.attempt, g.life, k.step, k.grp, k.typical_late_ns
    FROM kept_groups k
    JOIN gp_bounded_segments g ON g.source_id = k.source_id AND g.life = 0 AND g.from_seq = -1 AND k.step < g.closed_below
),
ratios AS (
    SELECT m.attempt, m.rank,
        CASE WHEN 2 * w.busy_ranks >= w.ranks THEN m.gap_ns + m.busy_ns ELSE m.gap_ns END::DOUBLE
            / coalesce(g.typical_late_ns, w.typical_late_ns) AS ratio
    FROM gp_named_measures m
    JOIN gp_window_parts w ON w.attempt = m.attempt AND w.life = m.life AND w.step = m.step
    LEFT JOIN groups g ON g.attempt = m.attempt AND g.life = m.life AND g.step = m.step
        AND g.grp IS NOT DISTINCT FROM m.grp
    WHERE coalesce(g.typical_late_ns, w.typical_late_ns) > 0
),
slowdowns AS (
    SELECT d.rank, d.node, median(r.ratio) AS slowdown_ratio
    FROM ratios r JOIN nodes d USING (attempt, rank) GROUP BY d.rank, d.node
)
SELECT d.rank, d.node, sum(coalesce(l.gpu_ns, 0)) AS loss_gpu_ns, sum(n.slowest_steps)::BIGINT AS slowest_steps,
    any_value(s.slowdown_ratio) AS slowdown_ratio
FROM gp_named_ranks n
JOIN nodes d USING (attempt, rank)
LEFT JOIN losses l USING (attempt, rank)
LEFT JOIN slowdowns s ON s.rank = d.rank AND s.node IS NOT DISTINCT FROM d.node
GROUP BY d.rank, d.node
ORDER BY loss_gpu_ns DESC, d.rank
