-- Purpose: every moment that an attempt holds GPUs, entered once.
-- Inputs:  gp_startup_entries, gp_window_entries, gp_free_time, gp_span_entries, gp_tail_entries
-- Grain:   one row per entry: exclusive intervals within a job.
-- Columns: attempt, step; category, phase; start_ns, end_ns
--          held_by    the attempt whose GPUs they are where no allocation says it
--          place      before, steps, spans, rollback (before its first step), tail, after, silence
--          charged_attempt, charged_life  the life whose end is charged with thrown-away work
--          latest_rank  who a straggler's loss is charged to
-- Algorithm: net time of a window is laid into what its declared spans leave free.
CREATE OR REPLACE TEMP VIEW gp_entries AS
SELECT attempt, NULL::BIGINT AS step, category, phase, start_ns, end_ns, held_by, place,
    NULL::BIGINT AS charged_attempt, NULL::BIGINT AS charged_life, NULL::BIGINT AS latest_rank
FROM gp_startup_entries
UNION ALL
SELECT attempt, step, category, phase, begin_ns + from_ns, begin_ns + to_ns, attempt, 'steps',
    charged_attempt, charged_life, latest_rank
FROM gp_window_entries WHERE NOT covered
UNION ALL
SELECT e.attempt, e.step, e.category, e.phase,
    f.start_ns + greatest(e.from_ns - f.net_from_ns, 0),
    f.start_ns + least(e.to_ns - f.net_from_ns, f.end_ns - f.start_ns),
    e.attempt, 'steps', e.charged_attempt, e.charged_life, e.latest_rank
FROM gp_window_entries e
JOIN gp_free_time f ON f.attempt = e.attempt AND f.idx = e.idx
    AND f.net_from_ns < e.to_ns AND f.net_from_ns + (f.end_ns - f.start_ns) > e.from_ns
WHERE e.covered
UNION ALL
SELECT attempt, step, category, phase, start_ns, end_ns, attempt,
    CASE WHEN before_rollback THEN 'rollback' ELSE 'spans' END, charged_attempt, charged_life, NULL
FROM gp_span_entries
UNION ALL
SELECT attempt, step, category, phase, start_ns, end_ns, attempt, 'tail',
    charged_attempt, charged_life, NULL
FROM gp_tail_entries
