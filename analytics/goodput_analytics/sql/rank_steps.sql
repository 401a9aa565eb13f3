-- Purpose: the steps of every rank of a run.
-- Inputs:  ev_step; the connection's variable gp_run_id (a view takes no parameters)
-- Grain:   one row per step event (source_id, seq).
-- Columns: ts_ns, start_ns, end_ns  on the source's own clock; an end before its start counts as equal to it
--          data_ns, busy_ns  NULL where they were not told
--          c                 steps that the event stands for; applied
-- Algorithm: a view: the rows of ranks are many, and each reader wants few of the columns.
CREATE OR REPLACE TEMP VIEW gp_rank_steps AS
SELECT
    source_id, seq, ts_ns, step, start_ns, greatest(start_ns, end_ns) AS end_ns, data_ns, busy_ns,
    coalesce("count", 1) AS c, coalesce(applied, true) AS applied
FROM ev_step
WHERE run_id = getvariable('gp_run_id')
