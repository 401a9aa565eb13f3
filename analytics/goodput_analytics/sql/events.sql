-- Purpose: everything that a rank, or somebody about it, said beside its steps, on aligned clocks.
-- Inputs:  gp_members, gp_clock_marks, gp_member_times, gp_beats_from, the ev_ tables; $run_id
-- Grain:   one row per event of a source that has a start, or of one that speaks of such a source; of heartbeats those
--          that can tell something (beats_from.sql).
-- Columns: attempt, part, source_id, rank  the rank that the event is about
--          kind, seq, ts_ns                 ts_ns aligned
--          word      span, phase or reason; detail  id of a span; step; flag  async, ok; category
--          own       told by the rank's own source
-- Algorithm: an event belongs to the part of its source that its seq lies in; one told by another source to the part
--            that had begun last (an observed exit: to the last part).
CREATE OR REPLACE TEMP TABLE gp_events AS
WITH own AS (
    SELECT source_id, 'start' AS kind, seq, ts_ns, NULL::VARCHAR AS word, NULL::VARCHAR AS detail, NULL::BIGINT AS step,
        NULL::BOOLEAN AS flag, NULL::VARCHAR AS category
    FROM ev_start WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'joined', seq, ts_ns, NULL, NULL, NULL, NULL, NULL FROM ev_joined WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'resume', seq, ts_ns, NULL, NULL, step, NULL, NULL FROM ev_resume WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'begin', seq, ts_ns, span, coalesce(id, span), step, coalesce(async, false), category
    FROM ev_begin WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'end', seq, ts_ns, span, coalesce(id, span), step, coalesce(ok, true), NULL
    FROM ev_end WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'durable', seq, ts_ns, NULL, NULL, step, coalesce(ok, true), NULL
    FROM ev_durable WHERE run_id = $run_id
    UNION ALL SELECT source_id, 'progress', seq, ts_ns, NULL, NULL, NULL, NULL, NULL
    FROM ev_progress WHERE run_id = $run_id
    UNION ALL SELECT h.source_id, 'heartbeat', h.seq, h.ts_ns, h.phase, NULL, h.step, NULL, NULL
    FROM ev_heartbeat h LEFT JOIN gp_beats_from b ON b.source_id = h.source_id
    WHERE h.run_id = $run_id AND h.of_source IS NULL
        AND coalesce(h.ts_ns >= b.from_ns OR h.step > b.last_step, b.source_id IS NULL)
    UNION ALL SELECT source_id, 'stop', seq, ts_ns, reason, detail, NULL, NULL, NULL FROM ev_stop WHERE run_id = $run_id
),
placed AS (
    SELECT m.attempt, m.part, m.source_id, m.rank, o.* EXCLUDE (source_id), true AS own
    FROM own o JOIN gp_members m ON m.source_id = o.source_id AND o.seq BETWEEN m.from_seq AND m.to_seq
    UNION ALL
    SELECT m.attempt, m.part, m.source_id, m.rank, 'heartbeat', h.seq, h.ts_ns, h.phase, NULL, h.step, NULL, NULL, false
    FROM (
        SELECT h.* FROM ev_heartbeat h LEFT JOIN gp_beats_from b ON b.source = h.of_source
        WHERE h.run_id = $run_id AND h.of_source IS NOT NULL
            AND coalesce(h.ts_ns >= b.from_ns OR h.step > b.last_step, b.source IS NULL)
    ) h
    ASOF JOIN gp_member_times m ON m.source = h.of_source AND h.ts_ns >= m.from_ns
    UNION ALL
    SELECT m.attempt, m.part, m.source_id, m.rank, 'exit', x.seq, x.ts_ns,
        CASE WHEN x.oom THEN 'oom' WHEN x.signal IS NOT NULL THEN 'signal ' || x.signal::VARCHAR
            WHEN x.exit_code IS NOT NULL THEN 'exit code ' || x.exit_code::VARCHAR END,
        NULL, NULL, NULL, NULL, false
    FROM ev_exit_observed x JOIN gp_members m ON m.source = x.of_source AND m.to_seq = 9223372036854775807
    WHERE x.run_id = $run_id
)
SELECT p.* REPLACE (p.ts_ns - k.offset_ns AS ts_ns)
FROM placed p
ASOF JOIN gp_clock_marks k ON k.source_id = p.source_id AND p.ts_ns >= k.from_ns
