-- Purpose: the steps of the job, reduced from those of its ranks, on aligned clocks.
-- Inputs:  gp_open_steps, gp_bounded_segments, gp_life_names, gp_clocks, kept_steps
-- Grain:   one row per (attempt, life, step).
-- Columns: first_start_ns, last_end_ns   the earliest start and the latest end over the ranks
--          first_end_ns                  the earliest end
--          told_c                        steps that the event stands for
--          data_ns                       the median over the ranks that report it, NULL if none does
--          ranks, busy_ranks             ranks that report the step; of these, those that report busy_ns
--          applied                       false when a rank says that the update was skipped
--          gap_ns, busy_key, busy_low    as in lateness.sql, before declared spans are taken off; NULL for a rank alone
--          closed                        kept reduced: its rows of ranks are gone
-- Algorithm: what a rank did after its attempt's end (until_ns) is no progress and is left out.
--            A rank alone has nobody to be reduced with.
CREATE OR REPLACE TEMP TABLE gp_windows AS
WITH aligned AS (
    SELECT
        g.life_id, r.step, r.start_ns - k.offset_ns AS start_ns, r.end_ns - k.offset_ns AS end_ns, r.c, r.data_ns, r.busy_ns,
        r.applied, g.rank, CASE WHEN r.seq = g.first_seq THEN 0 ELSE r.gap_ns END AS gap_ns
    FROM gp_open_steps r
    JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    JOIN gp_clocks k ON k.source_id = g.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
    WHERE r.end_ns - k.offset_ns <= g.until_ns AND NOT g.alone AND r.step >= g.closed_below
),
reduced AS (
    SELECT
        life_id, step,
        min(start_ns) AS first_start_ns,
        max(end_ns) AS last_end_ns,
        min(end_ns) AS first_end_ns,
        max(c) AS told_c,
        middle_ns(quantile_disc(data_ns, [0.5, 0.5000000001])) AS data_ns,
        count(*)::INTEGER AS ranks,
        count(busy_ns)::INTEGER AS busy_ranks,
        bool_and(applied) AS applied,
        middle_ns(quantile_disc(gap_ns, [0.5, 0.5000000001])) AS gap_ns,
        max(late_key(gap_ns + busy_ns, rank)) AS busy_key,
        quantile_disc(gap_ns + busy_ns, [0.25, 0.5, 0.5000000001, 1.0]) AS busy_low
    FROM aligned
    GROUP BY life_id, step
)
SELECT n.attempt, n.life, d.* EXCLUDE (life_id), false AS closed FROM reduced d JOIN gp_life_names n ON n.life_id = d.life_id
UNION ALL
SELECT
    g.attempt, g.life, r.step, r.start_ns - k.offset_ns, r.end_ns - k.offset_ns, r.end_ns - k.offset_ns, r.c,
    r.data_ns, 1, CASE WHEN r.busy_ns IS NULL THEN 0 ELSE 1 END, r.applied, NULL, NULL, NULL, false
FROM gp_open_steps r
JOIN gp_bounded_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
JOIN gp_clocks k ON k.source_id = g.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
WHERE r.end_ns - k.offset_ns <= g.until_ns AND g.alone
UNION ALL
SELECT g.attempt, g.life, k.step, k.first_start_ns, k.last_end_ns, k.first_end_ns, k.told_c, k.data_ns, k.ranks, k.busy_ranks,
    k.applied, k.gap_ns, k.busy_key, k.busy_low, true
FROM kept_steps k
JOIN gp_bounded_segments g ON g.source_id = k.source_id AND g.life = 0 AND g.from_seq = -1 AND k.step < g.closed_below
