-- Purpose: what else says something about the steps of a process, beside themselves.
-- Inputs:  ev_start, ev_joined, ev_resume, ev_begin, ev_end, ev_stop; the connection's variable gp_run_id
-- Grain:   one row per event.
CREATE OR REPLACE TEMP VIEW gp_marks AS
SELECT source_id, ts_ns FROM ev_start WHERE run_id = getvariable('gp_run_id')
UNION ALL SELECT source_id, ts_ns FROM ev_joined WHERE run_id = getvariable('gp_run_id')
UNION ALL SELECT source_id, ts_ns FROM ev_resume WHERE run_id = getvariable('gp_run_id')
UNION ALL SELECT source_id, ts_ns FROM ev_begin WHERE run_id = getvariable('gp_run_id')
UNION ALL SELECT source_id, ts_ns FROM ev_end WHERE run_id = getvariable('gp_run_id')
UNION ALL SELECT source_id, ts_ns FROM ev_stop WHERE run_id = getvariable('gp_run_id')
