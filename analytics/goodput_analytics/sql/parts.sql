-- Purpose: the lives of each process: a second token inside a process begins a new one.
-- Inputs:  ev_start, ev_joined, sources; $run_id
-- Grain:   one row per (source_id, part), for sources that have a start.
-- Columns: from_seq, to_seq    the events of the source that belong to this part (inclusive; to_seq is open-ended)
--          token               what the ranks of one attempt agreed upon, or NULL
--          process_ns          when the process (or its restart inside) began, on its own clock
--          told_ns             when it first said so
--          grp                 its group: what its last start that names one says (a start is told again once the
--                              process has learnt its place)
-- Algorithm: the tokens of a source in its own order; every change but the first begins a part.
CREATE OR REPLACE TEMP TABLE gp_parts AS
WITH first_start AS (
    SELECT *, arg_max(grp, seq) OVER (PARTITION BY source_id) AS told_grp FROM ev_start WHERE run_id = $run_id
    QUALIFY row_number() OVER (PARTITION BY source_id ORDER BY seq) = 1
),
told AS (
    SELECT source_id, seq, ts_ns, attempt_token, rank, world_size FROM ev_start WHERE run_id = $run_id
    UNION ALL
    SELECT source_id, seq, ts_ns, attempt_token, rank, world_size FROM ev_joined WHERE run_id = $run_id
),
tokens AS (
    SELECT *, lag(attempt_token) OVER (PARTITION BY source_id ORDER BY seq) AS token_before
    FROM told WHERE attempt_token IS NOT NULL
),
changes AS (
    SELECT *, row_number() OVER (PARTITION BY source_id ORDER BY seq) - 1 AS part
    FROM tokens WHERE token_before IS NULL OR token_before <> attempt_token
),
begun AS (
    SELECT source_id, part, seq, ts_ns, attempt_token FROM changes
    UNION ALL
    SELECT source_id, 0, seq, ts_ns, NULL FROM first_start
    WHERE source_id NOT IN (SELECT source_id FROM changes)
),
bounded AS (
    SELECT *, lead(seq) OVER (PARTITION BY source_id ORDER BY part) AS next_seq FROM begun
),
joined AS (
    SELECT b.source_id, b.part, t.rank, t.world_size
    FROM bounded b JOIN ev_joined t
        ON t.run_id = $run_id AND t.source_id = b.source_id AND t.attempt_token = b.attempt_token
        AND t.seq >= b.seq AND t.seq < coalesce(b.next_seq, 9223372036854775807)
    QUALIFY row_number() OVER (PARTITION BY b.source_id, b.part ORDER BY t.seq) = 1
)
SELECT
    b.source_id, b.part::INTEGER AS part, s.source,
    CASE WHEN b.part = 0 THEN -1 ELSE b.seq END AS from_seq,
    coalesce(b.next_seq - 1, 9223372036854775807) AS to_seq,
    b.attempt_token AS token,
    coalesce(j.rank, f.rank, 0) AS rank,
    coalesce(j.world_size, f.world_size, 1) AS world_size,
    f.node, coalesce(f.devices, 1) AS devices, f.told_grp AS grp, f.job,
    CASE WHEN b.part = 0 THEN least(coalesce(f.process_start_ns, f.ts_ns), f.ts_ns) ELSE b.ts_ns END AS process_ns,
    CASE WHEN b.part = 0 THEN f.ts_ns ELSE b.ts_ns END AS told_ns
FROM bounded b
JOIN first_start f USING (source_id)
JOIN sources s USING (source_id)
LEFT JOIN joined j ON j.source_id = b.source_id AND j.part = b.part
