-- Purpose: what the figures rest on.
-- Inputs:  gp_event_counts, gp_clocks, gp_attempts, gp_members, gp_window_parts, gp_spans, gp_ledger, gp_step_blocks, ev_dropped,
--          delivery; $run_id
-- Grain:   one row.
-- Columns: events, duplicates, conflicts, gaps, dropped, sources_without_start, missing_steps, negative_durations;
--          max_skew_ns; assumed_gap_gpu_ns  held between attempts, or silent, without a scheduler's word
CREATE OR REPLACE TEMP TABLE gp_quality AS
SELECT
    (SELECT coalesce(sum(events), 0)::BIGINT FROM gp_event_counts) AS events,
    (SELECT coalesce(sum(duplicates), 0)::BIGINT FROM delivery WHERE run_id = $run_id) AS duplicates,
    (SELECT coalesce(sum(conflicts), 0)::BIGINT FROM delivery WHERE run_id = $run_id) AS conflicts,
    (SELECT coalesce(sum(missing), 0)::BIGINT FROM gp_event_counts) AS gaps,
    (SELECT coalesce(sum(coalesce("count", 1)), 0)::BIGINT FROM ev_dropped WHERE run_id = $run_id) AS dropped,
    (SELECT count(*) FROM gp_event_counts WHERE ranked AND NOT started) AS sources_without_start,
    (SELECT coalesce(sum(missing), 0)::BIGINT FROM gp_window_parts) AS missing_steps,
    (SELECT coalesce(sum(backwards), 0)::BIGINT FROM gp_step_blocks)
        + (SELECT count(*) FROM gp_spans WHERE backwards) AS negative_durations,
    (SELECT coalesce(max(abs(offset_ns)), 0) FROM gp_clocks) AS max_skew_ns,
    (SELECT coalesce(sum((l.end_ns - l.start_ns)::HUGEINT * l.gpus), 0)
     FROM gp_ledger l JOIN gp_attempts a ON a.attempt = l.attempt
     WHERE l.place = 'silence'
        OR (l.place = 'before' AND l.end_ns <= a.process_ns
            AND (a.job IS NULL OR a.job NOT IN (SELECT job FROM gp_allocations)))) AS assumed_gap_gpu_ns
