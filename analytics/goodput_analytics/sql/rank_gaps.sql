-- Purpose: each step of a rank beside its own predecessor.
-- Inputs:  gp_rank_steps
-- Grain:   one row per step event (source_id, seq).
-- Columns: gap_ns   own start minus the own previous step's end; 0 where that step's event is missing
--          busy_ns  as told
--          back     the number fell behind the one before it (a rollback)
--          again    the number is the one before it (one step, told in pieces)
-- Algorithm: one window over each source in the order in which it wrote.
CREATE OR REPLACE TEMP TABLE gp_rank_gaps AS
WITH paired AS (
    SELECT
        source_id, seq, step, start_ns, c, busy_ns,
        lag(end_ns) OVER own AS before_end_ns,
        lag(step) OVER own AS before_step
    FROM gp_rank_steps
    WINDOW own AS (PARTITION BY source_id ORDER BY seq)
)
SELECT
    source_id, seq, step,
    CASE WHEN before_step BETWEEN step - c AND step THEN greatest(start_ns - before_end_ns, 0) ELSE 0 END AS gap_ns,
    busy_ns,
    coalesce(step < before_step, false) AS back,
    coalesce(step = before_step, false) AS again
FROM paired
