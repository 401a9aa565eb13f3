-- Purpose: who was the slowest far more often than chance has it: which rank, which device, which node, when, and whether
--          it lasted.
-- Inputs:  gp_window_parts, gp_attempts, gp_members, ev_start; $from_ns, $to_ns (NULL: all steps), $most, $severe,
--          $ranks (false: devices and nodes only)
-- Grain:   one row per suspect: a rank of an attempt, a device of a node (the n-th rank on it), or a node. Ranks are
--          numbered anew by a restart; devices and nodes are followed across all attempts. At most $most rows, those
--          who cost most first.
-- Columns: grain              rank, device or node
--          attempt, rank      of a rank; NULL of the others
--          node; device       where it is, NULL where nobody said; device is the rank's number on its node
--          severe             $severe: only steps that waited far longer than usual were looked at
--          lasting            true: persistent; false: transient
--          windows, suspected_windows   sliding windows in which it took part; of these, those in which it was suspected
--          first_step, last_step        from when to when, to a hop
--          steps, slowest_steps         of that time: steps that waited for somebody, and those that waited for it
--          slowest_ratio, expected_ratio   share of those steps in which it was the slowest, and chance's share
--          wait_ratio         of the steps in which it was the slowest, the share that the others waited
--          waited_gpu_s       GPU-seconds that the job waited for it, over all the steps looked at
--          attempts           in how many attempts it was the slowest more often than chance has it
--          one_device_ratio   of a node: the share of its busiest device in its slowest_steps. Near 1: one device is
--                             slow; near 1 / (devices on the node): the node is. NULL where devices are not known
-- Algorithm: steps with a straggler part, without first steps of attempts, are cut into hops: of 50 steps, but at least
--            eight hops and at most 1,000. A window is four hops, and slides by one. In a window of s steps in which
--            chance would make somebody the slowest e times (its ranks over the ranks reporting, summed over steps),
--            being it k > e times has a probability of at most exp(-(k ln(k/e) + (s - k) ln((s - k)/(s - e)))), by
--            Chernoff's bound for independent steps. Suspected is whose bound is below 1/20,000 over the number of all
--            suspects and windows, if k >= 5 and those steps waited for a hundredth of their length or more. It began
--            with the first hop of its first such window, and ended with the last hop of its last one, that has half or
--            more of what the window's worst hop has beyond chance. It lasts if it was suspected in half of the windows
--            or more, or in each of the last five. Whoever holds all ranks cannot be told from the others.
--            A short spell of great waits is lost among many steps. So with $severe only those steps are looked at
--            whose wait exceeds the median by 6 standard deviations (from the median distance to it), all of them in one
--            window of four hops.
WITH waited AS (
    SELECT * FROM gp_window_parts
    WHERE idx > 0 AND applied AND late_ranks > 1 AND straggler_ns > 0
        AND coalesce(end_ns > $from_ns::BIGINT, true) AND coalesce(begin_ns < $to_ns::BIGINT, true)
),
usual AS (SELECT median(straggler_ns) AS ns, mad(straggler_ns) AS spread_ns FROM waited WHERE $severe),
told AS (
    SELECT attempt, idx, step, c, latest_rank, late_ranks, straggler_ns, net_ns - hang_ns AS took_ns,
        row_number() OVER (ORDER BY begin_ns, attempt, idx) - 1 AS number, count(*) OVER () AS steps
    FROM waited CROSS JOIN usual WHERE NOT $severe OR straggler_ns > usual.ns + 6 * 1.4826 * usual.spread_ns
),
stepped AS MATERIALIZED (
    SELECT *, number // CASE WHEN $severe THEN (steps + 3) // 4
        ELSE greatest(least(50, (steps + 7) // 8), (steps + 999) // 1000, 1) END AS hop
    FROM told
),
bounds AS (
    SELECT least(3, max(hop)) AS first_window, max(hop) AS last_window, max(hop) - least(3, max(hop)) + 1 AS windows
    FROM stepped
),
devices AS (
    SELECT source_id, arg_min(local_rank, seq) AS device FROM ev_start
    WHERE source_id IN (SELECT source_id FROM gp_members) GROUP BY source_id
),
places AS MATERIALIZED (
    SELECT m.attempt, m.rank, min(m.node) AS node, min(d.device) AS device
    FROM gp_members m LEFT JOIN devices d USING (source_id) GROUP BY m.attempt, m.rank
),
named AS (
    SELECT 'rank' AS grain, attempt, rank, attempt AS of_attempt, rank AS of_rank, node, device,
        concat('rank ', attempt, ' ', rank) AS key
    FROM places WHERE $ranks
    UNION ALL
    SELECT 'device', attempt, rank, NULL, NULL, node, device, concat('device ', device, ' ', node)
    FROM places WHERE node IS NOT NULL AND device IS NOT NULL
    UNION ALL
    SELECT 'node', attempt, rank, NULL, NULL, node, NULL, concat('node ', node) FROM places WHERE node IS NOT NULL
),
keyed AS MATERIALIZED (SELECT * REPLACE (dense_rank() OVER (ORDER BY key) AS key) FROM named),
sizes AS MATERIALIZED (SELECT key, attempt, count(*) AS ranks FROM keyed GROUP BY key, attempt),
tests AS (SELECT count(DISTINCT key) * any_value(windows) AS tests FROM keyed CROSS JOIN bounds),
hits AS MATERIALIZED (
    SELECT s.number, s.hop, s.attempt, s.latest_rank, k.key, s.straggler_ns, s.took_ns
    FROM stepped s JOIN keyed k ON k.attempt = s.attempt AND k.rank = s.latest_rank
),
hopped AS MATERIALIZED (
    SELECT hop, key, count(*)::DOUBLE AS k, sum(straggler_ns::DOUBLE) AS waited_ns, sum(took_ns::DOUBLE) AS took_ns
    FROM hits GROUP BY hop, key
),
busy AS (
    SELECT w, key, sum(k) AS k
    FROM (
        SELECT key, k, waited_ns, took_ns, unnest(range(greatest(hop, first_window), least(hop + 3, last_window) + 1)) AS w
        FROM hopped CROSS JOIN bounds
    )
    GROUP BY w, key
    HAVING sum(k) >= 5 AND sum(waited_ns) >= 0.01 * sum(took_ns)
),
cut AS MATERIALIZED (
    SELECT hop, attempt, count(*) AS s, sum(1.0::DOUBLE / late_ranks) AS share, min(step - c + 1) AS first_step,
        max(step) AS last_step
    FROM stepped GROUP BY hop, attempt
),
exposed AS MATERIALIZED (
    SELECT w, attempt, sum(s)::DOUBLE AS s, sum(share) AS share
    FROM (
        SELECT attempt, s, share, unnest(range(greatest(hop, first_window), least(hop + 3, last_window) + 1)) AS w
        FROM cut CROSS JOIN bounds
    )
    GROUP BY w, attempt
),
expected AS (
    SELECT b.w, b.key, b.k, sum(e.s) AS s, sum(e.share * z.ranks) AS e
    FROM busy b JOIN sizes z ON z.key = b.key JOIN exposed e ON e.w = b.w AND e.attempt = z.attempt
    GROUP BY b.w, b.key, b.k
),
suspected AS MATERIALIZED (
    SELECT w, key FROM expected CROSS JOIN tests
    WHERE k > e AND e < s * 0.999999
        AND k * ln(k / e) + CASE WHEN k < s THEN (s - k) * ln((s - k) / (s - e)) ELSE 0 END > ln(20000.0::DOUBLE * tests)
),
present AS (
    SELECT z.key, e.w, u.w IS NOT NULL AS suspected,
        row_number() OVER (PARTITION BY z.key ORDER BY e.w DESC) AS from_last
    FROM (SELECT DISTINCT key, w FROM sizes JOIN exposed USING (attempt) WHERE key IN (SELECT key FROM suspected)) z
    JOIN (SELECT DISTINCT w FROM exposed) e ON e.w = z.w
    LEFT JOIN suspected u ON u.w = z.w AND u.key = z.key
),
held AS MATERIALIZED (
    SELECT key, count(*) AS windows, count(*) FILTER (suspected) AS suspected_windows,
        min(w) FILTER (suspected) AS first_w, max(w) FILTER (suspected) AS last_w,
        2 * count(*) FILTER (suspected) >= count(*) OR count(*) FILTER (suspected AND from_last <= 5) = 5 AS lasting
    FROM present GROUP BY key
),
beyond AS (
    SELECT h.hop, h.key, any_value(h.k) - sum(e.share * z.ranks) AS beyond
    FROM hopped h JOIN sizes z ON z.key = h.key JOIN cut e ON e.hop = h.hop AND e.attempt = z.attempt
    WHERE h.key IN (SELECT key FROM held) GROUP BY h.hop, h.key
),
begun AS (
    SELECT h.key, b.hop AS first_hop FROM held h JOIN beyond b ON b.key = h.key AND b.hop BETWEEN h.first_w - 3 AND h.first_w
    QUALIFY 2 * b.beyond >= max(b.beyond) OVER (PARTITION BY h.key)
),
ended AS (
    SELECT h.key, b.hop AS last_hop FROM held h JOIN beyond b ON b.key = h.key AND b.hop BETWEEN h.last_w - 3 AND h.last_w
    QUALIFY 2 * b.beyond >= max(b.beyond) OVER (PARTITION BY h.key)
),
spans AS MATERIALIZED (
    SELECT b.key, min(b.first_hop) AS first_hop, max(e.last_hop) AS last_hop
    FROM begun b JOIN ended e USING (key) GROUP BY b.key
),
over AS (
    SELECT p.key, min(e.first_step) AS first_step, max(e.last_step) AS last_step, sum(e.s)::BIGINT AS steps,
        sum(e.share * z.ranks) AS expected
    FROM spans p JOIN sizes z ON z.key = p.key
    JOIN cut e ON e.attempt = z.attempt AND e.hop BETWEEN p.first_hop AND p.last_hop
    GROUP BY p.key
),
slowest AS (
    SELECT p.key, sum(h.k)::BIGINT AS slowest_steps
    FROM spans p JOIN hopped h ON h.key = p.key AND h.hop BETWEEN p.first_hop AND p.last_hop GROUP BY p.key
),
costs AS (
    SELECT h.key, sum(h.straggler_ns::HUGEINT * a.gpus)::DOUBLE / 1e9 AS waited_gpu_s,
        sum(h.straggler_ns)::DOUBLE / sum(h.took_ns) AS wait_ratio
    FROM hits h JOIN gp_attempts a ON a.attempt = h.attempt WHERE h.key IN (SELECT key FROM held) GROUP BY h.key
),
by_attempt AS (
    SELECT h.key, h.attempt, count(*) AS k FROM hits h SEMI JOIN held USING (key) GROUP BY h.key, h.attempt
),
attempted AS (
    SELECT b.key, count(*) FILTER (b.k >= 5 AND b.k > e.share * z.ranks) AS attempts
    FROM by_attempt b JOIN sizes z ON z.key = b.key AND z.attempt = b.attempt
    JOIN (SELECT attempt, sum(share) AS share FROM cut GROUP BY attempt) e ON e.attempt = b.attempt
    GROUP BY b.key
),
by_device AS (
    SELECT h.key, p.device, count(*) AS k
    FROM hits h JOIN places p ON p.attempt = h.attempt AND p.rank = h.latest_rank
    WHERE h.key IN (SELECT key FROM held) AND p.device IS NOT NULL
    GROUP BY h.key, p.device
),
shares AS (SELECT key, max(k)::DOUBLE / sum(k) AS one_device_ratio FROM by_device GROUP BY key),
names AS (
    SELECT key, any_value(grain) AS grain, any_value(of_attempt) AS attempt, any_value(of_rank) AS rank,
        any_value(node) AS node, any_value(CASE WHEN grain <> 'node' THEN device END) AS device
    FROM keyed SEMI JOIN held USING (key) GROUP BY key
)
SELECT n.grain, n.attempt, n.rank, n.node, n.device, $severe AS severe, h.lasting AND NOT $severe AS lasting, h.windows, h.suspected_windows, o.first_step, o.last_step,
    o.steps, w.slowest_steps, w.slowest_steps::DOUBLE / o.steps AS slowest_ratio, o.expected / o.steps AS expected_ratio,
    c.wait_ratio, c.waited_gpu_s, a.attempts, CASE WHEN n.grain = 'node' THEN d.one_device_ratio END AS one_device_ratio
FROM names n JOIN held h USING (key) JOIN over o USING (key) JOIN slowest w USING (key) JOIN costs c USING (key) JOIN attempted a USING (key)
LEFT JOIN shares d USING (key)
ORDER BY c.waited_gpu_s DESC, n.grain = 'device', n.grain = 'rank', n.node, n.device, n.attempt, n.rank
LIMIT $most
