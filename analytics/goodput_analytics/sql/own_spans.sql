-- Purpose: when each rank was in spans of its own that block, since the first of the steps that are measured apart.
-- Inputs:  gp_spans, gp_touched_steps
-- Grain:   one row per (attempt, source_id, begin_ns): intervals of a source that exclude one another.
CREATE OR REPLACE TEMP TABLE gp_own_spans AS
WITH reached AS (
    SELECT attempt, source_id, begin_ns, blocking_end_ns AS end_ns,
        max(blocking_end_ns) OVER (PARTITION BY attempt, source_id ORDER BY begin_ns, blocking_end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach_ns
    FROM gp_spans
    WHERE blocking_end_ns > begin_ns AND blocking_end_ns > (SELECT min(start_ns) FROM gp_touched_steps)
),
numbered AS (
    SELECT *, sum((reach_ns IS NULL OR begin_ns > reach_ns)::INTEGER)
        OVER (PARTITION BY attempt, source_id ORDER BY begin_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
    FROM reached
)
SELECT attempt, source_id, min(begin_ns) AS begin_ns, max(end_ns) AS end_ns
FROM numbered GROUP BY attempt, source_id, island
