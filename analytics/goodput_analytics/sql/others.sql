-- Purpose: when anybody was last heard of, beside the ranks that the ledger rests on.
-- Inputs:  the ev_ tables, gp_step_blocks, gp_members, gp_job_names; $run_id
-- Grain:   one row.
-- Columns: ts_ns  own clocks: schedulers, agents, and sources that have no start; NULL if there are none
CREATE OR REPLACE TEMP TABLE gp_others AS
WITH strangers AS (
    SELECT source_id, ts_ns FROM ev_joined WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_resume WHERE run_id = $run_id
    UNION ALL SELECT source_id, last_told_ns FROM gp_step_blocks
    UNION ALL SELECT source_id, ts_ns FROM ev_begin WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_end WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_durable WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_progress WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_stop WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_dropped WHERE run_id = $run_id
    UNION ALL SELECT source_id, ts_ns FROM ev_heartbeat
    WHERE run_id = $run_id AND coalesce(of_source NOT IN (SELECT source FROM gp_members), true)
    UNION ALL SELECT source_id, ts_ns FROM ev_exit_observed
    WHERE run_id = $run_id AND of_source NOT IN (SELECT source FROM gp_members)
    UNION ALL SELECT source_id, ts_ns FROM ev_allocation
    WHERE run_id = $run_id OR (run_id IS NULL AND job IN (SELECT job FROM gp_job_names))
)
SELECT max(ts_ns) AS ts_ns FROM strangers WHERE source_id NOT IN (SELECT source_id FROM gp_members)
