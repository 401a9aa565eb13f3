-- Purpose: the steps of every rank of a run, each beside its own predecessor.
-- Inputs:  ev_step; $run_id
-- Grain:   one row per step event (source_id, seq).
-- Columns: start_ns, end_ns  on the source's own clock; an end before its start counts as equal to it
--          gap_ns    own start minus the own previous step's end; 0 where that step's event is missing
--          c         steps that the event stands for
--          back      the number fell behind the one before it (a rollback)
--          again     the number is the one before it (one step, told in pieces)
-- Algorithm: one window over each source in the order in which it wrote.
CREATE OR REPLACE TEMP TABLE gp_rank_steps AS
WITH told AS (
    SELECT
        source_id, seq, step, start_ns,
        greatest(start_ns, end_ns) AS end_ns,
        data_ns, busy_ns,
        coalesce("count", 1) AS c,
        coalesce(applied, true) AS applied
    FROM ev_step
    WHERE run_id = $run_id
),
paired AS (
    SELECT
        *,
        lag(end_ns) OVER own AS before_end_ns,
        lag(step) OVER own AS before_step
    FROM told
    WINDOW own AS (PARTITION BY source_id ORDER BY seq)
)
SELECT
    source_id, seq, step, start_ns, end_ns,
    CASE WHEN before_step = step - c THEN greatest(start_ns - before_end_ns, 0) ELSE 0 END AS gap_ns,
    data_ns, busy_ns, c, applied,
    coalesce(step < before_step, false) AS back,
    coalesce(step = before_step, false) AS again
FROM paired
