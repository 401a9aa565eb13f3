-- Purpose: what decides which attempt a process belongs to, on the processes' own clocks.
-- Inputs:  gp_parts, gp_step_blocks, ev_stop, ev_exit_observed; $run_id
-- Grain:   one row per (source_id, part).
-- Columns: first_step_ns, last_step_ns   its first step's start and its last step's end
--          first_done_ns                 its first step's end
--          last_told_ns                  when it told of its last step
--          stop_ns, stop_reason          its first stop
--          exit_ns                       when somebody saw that it had gone (the last part of a source only)
CREATE OR REPLACE TEMP TABLE gp_part_facts AS
WITH steps AS (
    SELECT source_id, part, min(first_start_ns) AS first_step_ns, max(last_end_ns) AS last_step_ns,
        min(first_end_ns) AS first_done_ns, max(last_told_ns) AS last_told_ns
    FROM gp_step_blocks GROUP BY source_id, part
),
stops AS (
    SELECT p.source_id, p.part, arg_min(e.ts_ns, e.seq) AS stop_ns, arg_min(e.reason, e.seq) AS stop_reason
    FROM ev_stop e JOIN gp_parts p ON p.source_id = e.source_id AND e.seq BETWEEN p.from_seq AND p.to_seq
    WHERE e.run_id = $run_id
    GROUP BY p.source_id, p.part
),
exits AS (
    SELECT p.source_id, p.part, min(e.ts_ns) AS exit_ns
    FROM ev_exit_observed e JOIN gp_parts p ON p.source = e.of_source
    WHERE e.run_id = $run_id AND p.to_seq = 9223372036854775807
    GROUP BY p.source_id, p.part
)
SELECT p.*, s.first_step_ns, s.last_step_ns, s.first_done_ns, s.last_told_ns, t.stop_ns, t.stop_reason, x.exit_ns
FROM gp_parts p
LEFT JOIN steps s ON s.source_id = p.source_id AND s.part = p.part
LEFT JOIN stops t ON t.source_id = p.source_id AND t.part = p.part
LEFT JOIN exits x ON x.source_id = p.source_id AND x.part = p.part
ORDER BY p.process_ns, p.source, p.part
