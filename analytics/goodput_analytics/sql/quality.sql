-- Purpose: what the figures rest on.
-- Inputs:  gp_event_counts, gp_clocks, gp_attempts, gp_members, gp_window_parts, gp_spans, gp_ledger, gp_step_blocks, ev_dropped,
--          delivery; $run_id
-- Grain:   one row.
-- Columns: events, duplicates, conflicts, gaps, dropped, sources_without_start, missing_steps, negative_durations;
--          max_skew_ns; assumed_gap_gpu_ns  held between attempts, or silent, without a scheduler's word
CREATE OR REPLACE TEMP TABLE gp_quality AS
WITH found AS (
    SELECT 'events' AS what, sum(events) AS n FROM gp_event_counts
    UNION ALL SELECT 'gaps', sum(missing) FROM gp_event_counts
    UNION ALL SELECT 'sources_without_start', count(*) FROM gp_event_counts WHERE ranked AND NOT started
    UNION ALL SELECT 'duplicates', sum(duplicates) FROM delivery WHERE run_id = $run_id
    UNION ALL SELECT 'conflicts', sum(conflicts) FROM delivery WHERE run_id = $run_id
    UNION ALL SELECT 'dropped', sum(coalesce("count", 1)) FROM ev_dropped WHERE run_id = $run_id
    UNION ALL SELECT 'missing_steps', sum(missing) FROM gp_window_parts
    UNION ALL SELECT 'negative_durations', sum(backwards) FROM gp_step_blocks
    UNION ALL SELECT 'negative_durations', count(*) FROM gp_spans WHERE backwards
    UNION ALL SELECT 'max_skew_ns', max(abs(offset_ns)) FROM gp_clocks
    UNION ALL
    SELECT 'assumed_gap_gpu_ns', sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus)
    FROM gp_ledger l JOIN gp_attempts a ON a.attempt = l.attempt
    WHERE l.place = 'silence'
        OR (l.place = 'before' AND l.end_ns <= a.process_ns
            AND (a.job IS NULL OR a.job NOT IN (SELECT job FROM gp_allocations)))
)
SELECT
    coalesce(sum(n) FILTER (what = 'events'), 0)::BIGINT AS events,
    coalesce(sum(n) FILTER (what = 'duplicates'), 0)::BIGINT AS duplicates,
    coalesce(sum(n) FILTER (what = 'conflicts'), 0)::BIGINT AS conflicts,
    coalesce(sum(n) FILTER (what = 'gaps'), 0)::BIGINT AS gaps,
    coalesce(sum(n) FILTER (what = 'dropped'), 0)::BIGINT AS dropped,
    coalesce(sum(n) FILTER (what = 'sources_without_start'), 0)::BIGINT AS sources_without_start,
    coalesce(sum(n) FILTER (what = 'missing_steps'), 0)::BIGINT AS missing_steps,
    coalesce(sum(n) FILTER (what = 'negative_durations'), 0)::BIGINT AS negative_durations,
    coalesce(sum(n) FILTER (what = 'max_skew_ns'), 0)::BIGINT AS max_skew_ns,
    coalesce(sum(n) FILTER (what = 'assumed_gap_gpu_ns'), 0) AS assumed_gap_gpu_ns
FROM found
