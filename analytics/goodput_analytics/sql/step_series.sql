-- Purpose: how long the steps of a run took, one after the other, for whoever looks for changes in it.
-- Inputs:  gp_window_parts, gp_attempts; $from_ns, $to_ns (NULL: all steps)
-- Grain:   one row per window, in order of time; without first steps of attempts and steps that were not applied.
-- Columns: attempt; step     the last step of the window; c  steps that it stands for
--          begin_ns, end_ns  when it lay
--          ranks, gpus       of its attempt
--          step_ns           the window without declared spans and hangs, per step
--          data_ns, gap_ns, straggler_ns  its parts by the ledger, per step
SELECT w.attempt, w.step, w.c, w.begin_ns, w.end_ns, a.gpus, w.ranks,
    (w.net_ns - w.hang_ns)::DOUBLE / w.c AS step_ns, w.data_ns::DOUBLE / w.c AS data_ns, w.gap_ns::DOUBLE / w.c AS gap_ns,
    w.straggler_ns::DOUBLE / w.c AS straggler_ns
FROM gp_window_parts w JOIN gp_attempts a USING (attempt)
WHERE w.idx > 0 AND w.applied AND w.net_ns > w.hang_ns
    AND coalesce(w.end_ns > $from_ns::BIGINT, true) AND coalesce(w.begin_ns < $to_ns::BIGINT, true)
ORDER BY w.begin_ns, w.attempt, w.idx
