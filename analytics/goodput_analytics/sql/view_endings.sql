-- Purpose: how each rank of each attempt went: what it said itself, and what was seen from outside.
-- Inputs:  gp_gone, gp_members, sources, ev_stop, ev_exit_observed; $most
-- Grain:   one row per rank of an attempt that said a stop or was seen to go; at most $most, the first to go first.
-- Columns: attempt, rank, node; gone_ns   aligned clocks
--          reason, detail   of its stop; exit_code, signal, oom   as an agent or a parent saw them
WITH stops AS (
    SELECT source_id, arg_min(detail, seq) AS detail FROM ev_stop GROUP BY source_id
),
exits AS (
    SELECT of_source AS source, arg_min(exit_code, ts_ns) AS exit_code, arg_min(signal, ts_ns) AS signal, bool_or(oom) AS oom
    FROM ev_exit_observed GROUP BY of_source
)
SELECT g.attempt, g.rank, g.node, g.gone_ns, g.stop_reason AS reason,
    CASE WHEN g.stop_ns IS NOT NULL THEN s.detail END AS detail,
    CASE WHEN g.exit_ns IS NOT NULL THEN e.exit_code END AS exit_code,
    CASE WHEN g.exit_ns IS NOT NULL THEN e.signal END AS signal,
    CASE WHEN g.exit_ns IS NOT NULL THEN e.oom END AS oom
FROM gp_gone g
LEFT JOIN stops s ON s.source_id = g.source_id
LEFT JOIN exits e ON e.source = g.source
WHERE g.gone_ns IS NOT NULL
ORDER BY g.attempt, g.gone_ns, g.rank
LIMIT $most
