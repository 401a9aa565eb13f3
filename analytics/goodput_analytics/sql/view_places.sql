-- Purpose: where a run runs and what it is called beside its name.
-- Inputs:  gp_members, ev_start; $most
-- Grain:   one row per (attempt, node, job); at most $most.
-- Columns: attempt; node, job  NULL where nobody said; ranks; device_kind
--          labels              JSON text, the lowest rank's; NULL without any
WITH told AS (
    SELECT source_id, arg_min(device_kind, seq) AS device_kind, arg_min(labels, seq) AS labels FROM ev_start GROUP BY source_id
)
SELECT m.attempt, m.node, m.job, count(DISTINCT m.rank) AS ranks, min(t.device_kind) AS device_kind,
    arg_min(t.labels, m.rank) AS labels
FROM gp_members m LEFT JOIN told t USING (source_id)
GROUP BY m.attempt, m.node, m.job
ORDER BY m.attempt, m.node NULLS FIRST, m.job NULLS FIRST
LIMIT $most
