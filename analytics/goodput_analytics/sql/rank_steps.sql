-- Purpose: the steps of every rank of a run, each beside its own predecessor.
-- Inputs:  ev_step; the connection's variable gp_run_id (a view takes no parameters)
-- Grain:   one row per step event (source_id, seq).
-- Columns: ts_ns, start_ns, end_ns  on the source's own clock; an end before its start counts as equal to it
--          data_ns, busy_ns  NULL where they were not told
--          c                 steps that the event stands for; applied
--          gap_ns            own start minus the own previous step's end; 0 where that step's event is missing
--          back              the number fell behind the one before it (a rollback)
--          again             the number is the one before it (one step, told in pieces)
--          backwards         it was told to have ended before it began
-- Algorithm: a view: the rows of ranks are many, and each reader wants few of the columns. Who came before was found
--            when the step landed.
CREATE OR REPLACE TEMP VIEW gp_rank_steps AS
SELECT
    source_id, seq, ts_ns, step, start_ns, greatest(start_ns, ev_step.end_ns) AS end_ns, data_ns, busy_ns,
    coalesce("count", 1) AS c, coalesce(applied, true) AS applied,
    CASE WHEN before_step BETWEEN step - coalesce("count", 1) AND step THEN greatest(start_ns - before_end_ns, 0)
        ELSE 0 END AS gap_ns,
    coalesce(step < before_step, false) AS back,
    coalesce(step = before_step, false) AS again,
    ev_step.end_ns < start_ns AS backwards
FROM ev_step
WHERE run_id = getvariable('gp_run_id')
