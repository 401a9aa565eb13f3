-- Purpose: each rank's last sign of life before its attempt's end, and how it left.
-- Inputs:  gp_gone, gp_part_facts, gp_clock_marks, gp_events, gp_attempts, gp_ends, gp_tails
-- Grain:   one row per rank of an attempt that aborted, or is live and hangs, or is live and has made no step.
-- Columns: last_sign_ns  its last event or heartbeat, no later than the abort
--          stop_ns, stop_reason; exit_ns, exit_word  how an agent saw it go
--          phase, step   of its last heartbeat; elsewhere_ns  the last that did not say that it waits for others, or when
--                        the rank was first heard of; beat_ns  the usual time between the attempt's heartbeats
CREATE OR REPLACE TEMP TABLE gp_signs AS
WITH wanted AS (
    SELECT attempt FROM gp_ends WHERE NOT inside
    UNION
    SELECT a.attempt FROM gp_attempts a LEFT JOIN gp_tails t USING (attempt)
    WHERE a.outcome = 'live' AND coalesce(t.hung, true)
),
said AS (
    SELECT e.attempt, e.source_id, e.part, max(e.ts_ns) FILTER (e.kind <> 'exit') AS last_ns,
        arg_max(e.word, e.ts_ns) FILTER (e.kind = 'heartbeat' AND e.ts_ns <= a.end_ns) AS phase,
        arg_max(coalesce(e.step, -1), e.ts_ns) FILTER (e.kind = 'heartbeat' AND e.ts_ns <= a.end_ns) AS step,
        max(e.ts_ns) FILTER (e.kind = 'heartbeat' AND e.word IS DISTINCT FROM 'waiting') AS elsewhere_ns,
        arg_min(e.word, e.ts_ns) FILTER (e.kind = 'exit') AS exit_word
    FROM gp_events e JOIN wanted USING (attempt) JOIN gp_attempts a USING (attempt)
    GROUP BY e.attempt, e.source_id, e.part
),
beats AS (
    SELECT e.attempt, ts_ns - lag(ts_ns) OVER (PARTITION BY e.source_id, e.part ORDER BY ts_ns) AS beat_ns
    FROM gp_events e JOIN wanted USING (attempt) JOIN gp_attempts a USING (attempt)
    WHERE e.kind = 'heartbeat' AND e.ts_ns <= a.end_ns
),
usual AS (
    SELECT attempt, quantile_disc(beat_ns, 0.5) AS beat_ns FROM beats WHERE beat_ns IS NOT NULL GROUP BY attempt
),
steps AS (
    SELECT f.source_id, f.part, m.attempt, f.last_step_ns - k.offset_ns AS last_step_ns
    FROM gp_part_facts f
    JOIN gp_members m ON m.source_id = f.source_id AND m.part = f.part
    JOIN wanted w ON w.attempt = m.attempt
    ASOF JOIN gp_clock_marks k ON k.source_id = f.source_id AND f.last_step_ns >= k.from_ns
    WHERE f.last_step_ns IS NOT NULL
)
SELECT g.attempt, g.rank,
    least(greatest(s.last_ns, t.last_step_ns, g.told_ns), a.end_ns) AS last_sign_ns,
    g.stop_ns, g.stop_reason, g.exit_ns, s.exit_word, s.phase, s.step,
    coalesce(s.elsewhere_ns, g.told_ns) AS elsewhere_ns, u.beat_ns, a.end_ns AS abort_ns
FROM gp_gone g
JOIN wanted USING (attempt)
JOIN gp_attempts a USING (attempt)
LEFT JOIN said s ON s.attempt = g.attempt AND s.source_id = g.source_id AND s.part = g.part
LEFT JOIN steps t ON t.attempt = g.attempt AND t.source_id = g.source_id AND t.part = g.part
LEFT JOIN usual u ON u.attempt = g.attempt
ORDER BY g.attempt, g.rank, g.source_id, g.part
