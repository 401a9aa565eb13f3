-- Purpose: what of the waiting for slow ranks would go if the worst few of them were no later than the rest.
-- Inputs:  gp_window_parts, gp_measures, gp_ledger; $from_ns, $to_ns (NULL: all steps), $most, $most_steps
-- Grain:   one row per k from 1 to $most: the k worst ranks; fewer where fewer ranks are ever late. None where no step
--          waited.
-- Columns: k; rank            the k-th worst
--          saved_ratio        of the waiting that was looked at, what is gone without the k worst
--          saved_gpu_s        the same of the whole run's `straggler` GPU-seconds
-- Algorithm: of all steps every k-th is looked at, no more than $most_steps. In each the wait is the latest rank's
--            lateness over the lower quartile's. Ranks are in the order of what they alone cost: the latest one's lead
--            over the second latest. Without the worst few a step waits for the latest of the others.
WITH windows AS (
    SELECT attempt, life, step, 2 * busy_ranks >= ranks AS busy,
        row_number() OVER (ORDER BY begin_ns, attempt, life, step) - 1 AS number, count(*) OVER () AS windows
    FROM gp_window_parts
    WHERE ranks > 1 AND applied AND straggler_ns > 0
        AND coalesce(end_ns > $from_ns::BIGINT, true) AND coalesce(begin_ns < $to_ns::BIGINT, true)
),
sampled AS (
    SELECT * FROM windows WHERE number % greatest((windows + $most_steps::BIGINT - 1) // $most_steps::BIGINT, 1) = 0
),
told AS (
    SELECT s.number, m.rank, CASE WHEN s.busy THEN m.late_ns ELSE m.gap_ns END AS late_ns
    FROM gp_measures m JOIN sampled s ON s.attempt = m.attempt AND s.life = m.life AND s.step = m.step
),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY number ORDER BY late_ns DESC, rank) AS place,
        lead(late_ns) OVER (PARTITION BY number ORDER BY late_ns DESC, rank) AS next_ns
    FROM told WHERE late_ns IS NOT NULL
),
low AS (
    SELECT number, quantile_disc(late_ns, 0.25) AS low_ns, max(late_ns) AS high_ns FROM told GROUP BY number
),
costs AS (
    SELECT rank, sum(late_ns - next_ns) AS cost_ns FROM placed WHERE place = 1 AND next_ns IS NOT NULL GROUP BY rank
),
worst AS (
    SELECT rank, row_number() OVER (ORDER BY cost_ns DESC, rank) AS k FROM costs WHERE cost_ns > 0
    QUALIFY k <= $most::BIGINT
),
left_ns AS (
    SELECT w.k, p.number, max(p.late_ns) AS late_ns
    FROM worst w JOIN placed p ON NOT EXISTS (SELECT 1 FROM worst o WHERE o.rank = p.rank AND o.k <= w.k)
    GROUP BY w.k, p.number
),
waits AS (
    SELECT l.k, sum(greatest(l.late_ns - o.low_ns, 0)) AS wait_ns FROM left_ns l JOIN low o USING (number) GROUP BY l.k
),
whole AS (SELECT sum(greatest(high_ns - low_ns, 0)) AS wait_ns FROM low),
lost AS (
    SELECT coalesce(sum((end_ns - start_ns)::HUGEINT * gpus), 0)::DOUBLE / 1e9 AS gpu_s FROM gp_ledger WHERE category = 'straggler'
)
SELECT w.k, w.rank, 1 - a.wait_ns::DOUBLE / o.wait_ns AS saved_ratio,
    (1 - a.wait_ns::DOUBLE / o.wait_ns) * lost.gpu_s AS saved_gpu_s
FROM worst w JOIN waits a USING (k) CROSS JOIN whole o CROSS JOIN lost
WHERE o.wait_ns > 0
ORDER BY w.k
