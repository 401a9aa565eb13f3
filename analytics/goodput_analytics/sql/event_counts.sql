-- Purpose: how many events of the run have landed, and what is missing between them.
-- Inputs:  the ev_ tables, gp_step_blocks; $run_id
-- Grain:   one row per source.
-- Columns: events; missing  sequence numbers below the highest that never came
--          ranked  it wrote what only a rank writes; started  it has a start
CREATE OR REPLACE TEMP TABLE gp_event_counts AS
WITH told AS (
    SELECT source_id, count(*) AS n, max(seq) AS last, true AS ranked, true AS started FROM ev_start WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_joined WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_resume WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, sum(steps)::BIGINT, max(last_seq), true, false FROM gp_step_blocks GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_begin WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_end WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_durable WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_progress WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), bool_or(of_source IS NULL), false FROM ev_heartbeat
    WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), true, false FROM ev_stop WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), false, false FROM ev_exit_observed WHERE run_id = $run_id GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), false, false FROM ev_allocation
    WHERE run_id = $run_id OR (run_id IS NULL AND job IN (SELECT job FROM gp_job_names)) GROUP BY 1
    UNION ALL SELECT source_id, count(*), max(seq), false, false FROM ev_dropped WHERE run_id = $run_id GROUP BY 1
)
SELECT source_id, sum(n)::BIGINT AS events, greatest(max(last) + 1 - sum(n), 0)::BIGINT AS missing,
    bool_or(ranked) AS ranked, bool_or(started) AS started
FROM told GROUP BY source_id
