-- Purpose: when each rank of an attempt was seen to go.
-- Inputs:  gp_members, gp_part_facts, gp_events, gp_clock_marks
-- Grain:   one row per (attempt, source_id, part).
-- Columns: process_ns, told_ns  when it began and first said so, aligned
--          stop_ns, stop_reason  its first stop; exit_ns  when its exit was first observed
--          gone_ns               its stop, or else its exit; last_told_ns  when it told of its last step
CREATE OR REPLACE TEMP TABLE gp_gone AS
WITH said AS (
    SELECT source_id, part,
        arg_min(ts_ns, seq) FILTER (kind = 'stop') AS stop_ns,
        arg_min(word, seq) FILTER (kind = 'stop') AS stop_reason,
        min(ts_ns) FILTER (kind = 'exit') AS exit_ns
    FROM gp_events WHERE kind IN ('stop', 'exit')
    GROUP BY source_id, part
),
last_told AS (
    SELECT f.source_id, f.part, any_value(f.last_told_ns) - arg_max(l.offset_ns, l.from_ns) AS last_told_ns
    FROM gp_part_facts f JOIN gp_clock_marks l ON l.source_id = f.source_id AND f.last_told_ns >= l.from_ns
    GROUP BY f.source_id, f.part
)
SELECT m.* REPLACE (m.process_ns - k.offset_ns AS process_ns, m.told_ns - k.offset_ns AS told_ns),
    s.stop_ns, s.stop_reason, s.exit_ns, coalesce(s.stop_ns, s.exit_ns) AS gone_ns,
    t.last_told_ns,
    coalesce(s.stop_reason IN ('finished', 'exited'), false) AS finished
FROM gp_members m
JOIN gp_clock_marks k ON k.source_id = m.source_id AND k.from_ns = -9223372036854775807
LEFT JOIN said s ON s.source_id = m.source_id AND s.part = m.part
LEFT JOIN last_told t ON t.source_id = m.source_id AND t.part = m.part
