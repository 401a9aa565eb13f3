-- Purpose: the windows' time, entered by category, in each window's net time.
-- Inputs:  gp_portions, gp_window_parts, gp_named_ranks
-- Grain:   one row per entry.
-- Columns: from_ns, to_ns  counted from the window's begin, declared spans left out
--          category, phase; charged_attempt, charged_life  whose end a thrown-away step is charged to
--          latest_rank     who a straggler's loss is charged to
CREATE OR REPLACE TEMP VIEW gp_window_entries AS
WITH named AS NOT MATERIALIZED (
    SELECT p.attempt, p.idx, p.step, p.begin_ns, p.covered, p.kept AND p.applied AS good, p.applied, p.from_ns, p.share_ns,
        p.data_ns, p.gap_ns, p.straggler_ns, p.over_ns, p.productive_ns, p.charged_attempt, p.charged_life, p.latest_rank,
        n.rank IS NOT NULL AS is_named
    FROM gp_portions p LEFT JOIN gp_named_ranks n ON n.attempt = p.attempt AND n.rank = p.latest_rank
),
thrown AS NOT MATERIALIZED (SELECT * FROM named WHERE NOT good),
good AS NOT MATERIALIZED (SELECT * FROM named WHERE good),
entries AS (
    SELECT attempt, idx, step, begin_ns, covered, 'data_wait' AS category, NULL::VARCHAR AS phase,
        from_ns, from_ns + data_ns AS to_ns,
        NULL::BIGINT AS charged_attempt, NULL::BIGINT AS charged_life, NULL::BIGINT AS latest_rank FROM good
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'unattributed', NULL, from_ns + data_ns, from_ns + data_ns + gap_ns,
        NULL, NULL, NULL FROM good
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'straggler', CASE WHEN is_named THEN 'rank' ELSE 'jitter' END,
        from_ns + data_ns + gap_ns, from_ns + data_ns + gap_ns + straggler_ns, NULL, NULL, latest_rank FROM good
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'straggler', 'jitter', from_ns + data_ns + gap_ns + straggler_ns,
        from_ns + data_ns + gap_ns + straggler_ns + over_ns, NULL, NULL, NULL FROM good
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'productive', NULL, from_ns + share_ns - productive_ns,
        from_ns + share_ns, NULL, NULL, NULL FROM good
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'rework', CASE WHEN NOT applied THEN 'skipped' END, from_ns,
        from_ns + share_ns, charged_attempt, charged_life, NULL FROM thrown
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'startup', 'warmup', 0, warmup_ns, NULL, NULL, NULL
    FROM gp_window_parts WHERE warmup_ns > 0
    UNION ALL
    SELECT attempt, idx, step, begin_ns, covered, 'hang', 'step', net_ns - hang_ns, net_ns, NULL, NULL, NULL
    FROM gp_window_parts WHERE hang_ns > 0
)
SELECT * FROM entries WHERE to_ns > from_ns
