-- Purpose: what else is told of a run to those who watch it.
-- Inputs:  gp_tails, gp_attempts, gp_members, gp_spans, ev_start; $run_id
-- Grain:   one row.
-- Columns: progress_ns   the last proof of progress, NULL before the first step
--          silent_ranks  ranks of the live attempt that never reported, NULL where none lives
--          first_span    the live attempt is in a declared span of a name that had never been completed before it began,
--                        so that nothing tells how long it takes; NULL where none lives
--          labels        of the process that started last, as JSON text, NULL without any
CREATE OR REPLACE TEMP TABLE gp_metric_facts AS
SELECT
    (SELECT max(mark_ns) FROM gp_tails) AS progress_ns,
    (
        SELECT arg_max(greatest(a.world_size - (SELECT count(DISTINCT m.rank) FROM gp_members m WHERE m.attempt = a.attempt), 0), a.attempt)
        FROM gp_attempts a WHERE a.outcome = 'live'
    ) AS silent_ranks,
    (
        SELECT bool_or(t.activity IS NOT NULL AND t.activity <> 'step' AND NOT EXISTS (
            SELECT 1 FROM gp_spans s WHERE s.name = t.activity AND s.closed AND s.end_ns <= (
                SELECT max(o.begin_ns) FROM gp_spans o WHERE o.attempt = t.attempt AND o.open AND o.name = t.activity)))
        FROM gp_attempts a LEFT JOIN gp_tails t USING (attempt) WHERE a.outcome = 'live'
    ) AS first_span,
    (
        SELECT arg_max(s.labels, (s.ts_ns, s.source_id)) FROM ev_start s SEMI JOIN gp_members m USING (source_id)
        WHERE s.run_id = $run_id AND s.labels IS NOT NULL
    ) AS labels
