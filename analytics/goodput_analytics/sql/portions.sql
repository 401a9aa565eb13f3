-- Purpose: what became of each window's steps: kept or thrown away, and to whose end that is charged.
-- Inputs:  gp_window_parts, gp_fates
-- Grain:   one row per (attempt, idx, portion): steps of one fate, in order of step.
-- Columns: steps        how many of the window's c; before  how many of them precede
--          data_ns …    this portion's share of the window's parts; warm-up and hang are not divided
--          from_ns      where the portion begins, counted in the window's net time
-- Algorithm: what an event claims of steps before its life began counts to the life's first fate. In proportion to the steps: floor(part * upto / c) - floor(part * before / c), so that shares add up.
CREATE OR REPLACE TEMP TABLE gp_portions AS
WITH cut AS (
    SELECT w.*, f.kept, f.charged_attempt, f.charged_life,
        CASE WHEN f.lowest THEN 0 ELSE greatest(f.after_step - (w.step - w.c), 0) END AS before,
        least(f.to_step, w.step) - (w.step - w.c) AS upto
    FROM gp_window_parts w
    JOIN gp_fates f ON f.attempt = w.attempt AND f.life = w.life
        AND f.after_step < w.step AND f.to_step > w.step - w.c
),
shared AS (
    SELECT *,
        CASE WHEN upto - before = c THEN data_ns
            ELSE (data_ns::HUGEINT * upto // c - data_ns::HUGEINT * before // c)::BIGINT END AS data_share_ns,
        CASE WHEN upto - before = c THEN gap_ns
            ELSE (gap_ns::HUGEINT * upto // c - gap_ns::HUGEINT * before // c)::BIGINT END AS gap_share_ns,
        CASE WHEN upto - before = c THEN straggler_ns
            ELSE (straggler_ns::HUGEINT * upto // c - straggler_ns::HUGEINT * before // c)::BIGINT END
            AS straggler_share_ns,
        CASE WHEN upto - before = c THEN over_ns
            ELSE (over_ns::HUGEINT * upto // c - over_ns::HUGEINT * before // c)::BIGINT END AS over_share_ns,
        CASE WHEN upto - before = c THEN productive_ns
            ELSE (productive_ns::HUGEINT * upto // c - productive_ns::HUGEINT * before // c)::BIGINT END
            AS productive_share_ns
    FROM cut
),
summed AS MATERIALIZED (
    SELECT *, data_share_ns + gap_share_ns + straggler_share_ns + over_share_ns + productive_share_ns AS share_ns
    FROM shared
),
preceding AS (
    SELECT d.attempt, d.idx, d.before, sum(p.share_ns)::BIGINT AS preceding_ns
    FROM summed d JOIN summed p ON p.attempt = d.attempt AND p.idx = d.idx AND p.before < d.before
    WHERE d.before > 0 AND p.upto < p.c
    GROUP BY d.attempt, d.idx, d.before
)
SELECT
    s.attempt, s.life, s.idx, s.step, s.begin_ns, s.end_ns, s.covered, s.applied, s.c, s.upto - s.before AS steps, s.before,
    s.kept, s.charged_attempt, s.charged_life, s.warmup_ns + coalesce(p.preceding_ns, 0) AS from_ns,
    s.share_ns, s.gap_share_ns AS gap_ns, s.data_share_ns AS data_ns, s.productive_share_ns AS productive_ns,
    s.straggler_share_ns AS straggler_ns, s.over_share_ns AS over_ns,
    s.latest_rank, s.late_ranks
FROM summed s LEFT JOIN preceding p ON p.attempt = s.attempt AND p.idx = s.idx AND p.before = s.before
