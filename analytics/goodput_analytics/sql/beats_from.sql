-- Purpose: from when on the heartbeats of a process can tell something.
-- Inputs:  gp_members, gp_part_facts, gp_segments
-- Grain:   one row per process of one part that made steps.
-- Columns: from_ns    half an hour before its last step's end, own clock
--          last_step  the last number that it told; a heartbeat that knows of a later one counts at any time
-- Algorithm: heartbeats tell what a rank did when its attempt ended, or does now; before its last step's end they prove
--            nothing that steps do not. They are many: without older ones a report costs as much after a long run.
CREATE OR REPLACE TEMP TABLE gp_beats_from AS
SELECT m.source_id, any_value(m.source) AS source, any_value(f.last_step_ns) - 1800000000000 AS from_ns,
    any_value(g.last_step) AS last_step
FROM gp_members m
JOIN gp_part_facts f ON f.source_id = m.source_id AND f.part = m.part
JOIN (
    SELECT source_id, arg_max(last_step, from_seq) AS last_step FROM gp_segments WHERE last_step IS NOT NULL
    GROUP BY source_id
) g ON g.source_id = m.source_id
GROUP BY m.source_id
HAVING count(*) = 1 AND any_value(f.last_step_ns) > -9223370000000000000
