-- Purpose: what if the worst few ranks were no later than the rest: how much shorter steps would be.
-- Inputs:  gp_window_parts, gp_segments, gp_measures, gp_grouped_attempts, gp_members, gp_ledger, ev_start; $from_ns, $to_ns (NULL: all
--          steps), $most, $most_steps
-- Grain:   one row per k from 0 to $most, the k worst ranks, and one for the worst 3 % where that is more; fewer where
--          fewer ranks are ever late. None where no step waited.
-- Columns: k; rank, node      the k-th worst, and where it last ran; NULL for k = 0, which is how things are. Where all
--                             ranks say which device of which node they drive, a rank stands for that device, whatever
--                             its number was in earlier attempts
--          ranks              ranks that there are in all
--          alone_ratio        S of this rank: the length of steps over the ideal if only this one were late
--          slowdown_ratio     S without the k worst: the length of steps over the ideal; at k = 0 the run's own
--          waste_ratio        1 - 1 / S: the share of the steps' time that is waiting
--          saved_ratio        of the waiting that was looked at, what is gone without the k worst (in the paper: M_W)
--          saved_gpu_s        the same of the whole run's `straggler` GPU-seconds, without those of closed steps
-- Algorithm: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025: S = T /
--            T_ideal, and M_W = (T - T without the worst) / (T - T_ideal). T is the steps' time without declared spans,
--            warm-up and hangs; T_ideal is T less the ledger's straggler parts, so that a rank is ideal at its group's
--            lower quartile (the paper simulates each operation at its mean, and the pipeline's dependencies).
--            Closed steps, of which the rows of ranks have gone, are left out.
--            How the waiting falls to ranks is known from steps looked at, every k-th, no more than $most_steps: in each
--            the wait is the greatest lateness over the lower quartile of its group. Ranks are in the order of what
--            steps would wait if only they were late, the paper's S_w, so that two that are equally late both count.
WITH closed AS (
    SELECT attempt, max(closed_below) AS below FROM gp_segments GROUP BY attempt
),
stretch AS (
    SELECT w.attempt, w.life, w.step, w.begin_ns, w.ranks, 2 * w.busy_ranks >= w.ranks AS busy, w.straggler_ns,
        w.net_ns - w.warmup_ns - w.hang_ns AS took_ns
    FROM gp_window_parts w JOIN closed c ON c.attempt = w.attempt
    WHERE w.applied AND coalesce(w.end_ns > $from_ns::BIGINT, true) AND coalesce(w.begin_ns < $to_ns::BIGINT, true)
        AND NOT (w.life = 0 AND w.step < c.below)
),
times AS (
    SELECT sum(took_ns)::DOUBLE AS took_ns, sum(straggler_ns)::DOUBLE AS waited_ns FROM stretch
),
windows AS (
    SELECT attempt, life, step, busy,
        row_number() OVER (ORDER BY begin_ns, attempt, life, step) - 1 AS number, count(*) OVER () AS windows
    FROM stretch WHERE ranks > 1 AND straggler_ns > 0
),
sampled AS (
    SELECT * FROM windows WHERE number % greatest((windows + $most_steps::BIGINT - 1) // $most_steps::BIGINT, 1) = 0
),
devices AS (
    SELECT source_id, arg_min(local_rank, seq) AS device FROM ev_start
    WHERE source_id IN (SELECT source_id FROM gp_members) GROUP BY source_id
),
places AS MATERIALIZED (
    SELECT m.attempt, m.rank, min(m.node) AS node, min(d.device) AS device
    FROM gp_members m LEFT JOIN devices d USING (source_id) GROUP BY m.attempt, m.rank
),
workers AS MATERIALIZED (
    SELECT attempt, rank, node,
        CASE WHEN (SELECT bool_and(node IS NOT NULL AND device IS NOT NULL) FROM places) THEN concat(device, ' ', node)
            ELSE rank::VARCHAR END AS worker
    FROM places
),
told AS MATERIALIZED (
    SELECT s.number, p.worker, CASE WHEN s.busy THEN m.late_ns ELSE m.gap_ns END AS late_ns,
        CASE WHEN s.attempt IN (SELECT attempt FROM gp_grouped_attempts) THEN coalesce(m.grp, '') END AS grp
    FROM gp_measures m JOIN sampled s ON s.attempt = m.attempt AND s.life = m.life AND s.step = m.step
    JOIN workers p ON p.attempt = m.attempt AND p.rank = m.rank
),
low AS (
    SELECT number, grp, quantile_disc(late_ns, 0.25) AS low_ns FROM told GROUP BY number, grp
),
held AS MATERIALIZED (
    SELECT t.number, t.worker, greatest(t.late_ns - l.low_ns, 0) AS excess_ns
    FROM told t JOIN low l ON l.number = t.number AND l.grp IS NOT DISTINCT FROM t.grp
    WHERE t.late_ns IS NOT NULL
),
whole AS (
    SELECT sum(wait_ns)::DOUBLE AS wait_ns FROM (SELECT max(excess_ns) AS wait_ns FROM held GROUP BY number)
),
names AS (
    SELECT worker, arg_max(rank, attempt) AS rank, arg_max(node, attempt) AS node FROM workers GROUP BY worker
),
costs AS (
    SELECT h.worker, n.rank, n.node, sum(h.excess_ns)::DOUBLE AS cost_ns
    FROM held h JOIN names n ON n.worker = h.worker GROUP BY h.worker, n.rank, n.node
),
sizes AS (SELECT count(*) AS ranks, (3 * count(*) + 99) // 100 AS few FROM costs),
worst AS (
    SELECT c.worker, c.rank, c.node, c.cost_ns, row_number() OVER (ORDER BY c.cost_ns DESC, c.rank, c.worker) AS k
    FROM costs c CROSS JOIN sizes s WHERE c.cost_ns > 0
    QUALIFY k <= greatest($most::BIGINT, s.few)
),
others AS (
    SELECT h.number, coalesce(max(h.excess_ns) FILTER (w.k IS NULL), 0) AS excess_ns
    FROM held h LEFT JOIN worst w ON w.worker = h.worker GROUP BY h.number
),
grid AS (
    SELECT o.number, w.k, o.excess_ns AS others_ns, coalesce(h.excess_ns, 0) AS excess_ns
    FROM others o CROSS JOIN worst w LEFT JOIN held h ON h.number = o.number AND h.worker = w.worker
),
without AS (
    SELECT k, greatest(others_ns, coalesce(max(excess_ns) OVER (
        PARTITION BY number ORDER BY k DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)) AS wait_ns
    FROM grid
),
waits AS (
    SELECT k, sum(wait_ns)::DOUBLE AS wait_ns FROM without GROUP BY k
    UNION ALL SELECT 0, wait_ns FROM whole
),
lost AS (
    SELECT coalesce(sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus), 0)::DOUBLE / 1e9 AS gpu_s
    FROM gp_ledger l JOIN closed c ON c.attempt = l.attempt
    WHERE l.category = 'straggler' AND coalesce(l.step >= c.below, true)
),
figures AS (
    SELECT a.k, w.rank, w.node, w.cost_ns / o.wait_ns AS alone_share, a.wait_ns / o.wait_ns AS left_share
    FROM waits a LEFT JOIN worst w ON w.k = a.k CROSS JOIN whole o CROSS JOIN sizes s
    WHERE o.wait_ns > 0 AND (a.k <= $most::BIGINT OR a.k = s.few)
)
SELECT f.k, f.rank, f.node, s.ranks,
    1 + f.alone_share * t.waited_ns / (t.took_ns - t.waited_ns) AS alone_ratio,
    1 + f.left_share * t.waited_ns / (t.took_ns - t.waited_ns) AS slowdown_ratio,
    f.left_share * t.waited_ns / (t.took_ns - t.waited_ns + f.left_share * t.waited_ns) AS waste_ratio,
    1 - f.left_share AS saved_ratio, (1 - f.left_share) * lost.gpu_s AS saved_gpu_s
FROM figures f CROSS JOIN sizes s CROSS JOIN times t CROSS JOIN lost
WHERE t.took_ns > t.waited_ns
ORDER BY f.k
