-- Purpose: why each attempt ended.
-- Inputs:  gp_attempts, gp_tails, gp_events; $silence_ns
-- Grain:   one row per attempt.
-- Columns: end_cause  finished, live, hang, preempted, crash or lost
--          silent     nobody saw it go, and it was long before the next attempt began
--          mark_ns    its last proof of progress; its first process's start if it gave none
CREATE OR REPLACE TEMP TABLE gp_end_causes AS
WITH marks AS (
    SELECT v.attempt, max(v.ts_ns) AS mark_ns
    FROM gp_events v JOIN gp_attempts a USING (attempt)
    WHERE v.kind IN ('begin', 'end', 'progress') AND v.ts_ns <= a.end_ns
    GROUP BY v.attempt
),
judged AS (
    SELECT a.*, t.hung, coalesce(t.mark_ns, m.mark_ns, a.process_ns) AS mark_ns,
        a.outcome = 'aborted' AND NOT a.seen AND NOT a.ends_with_grant AND t.attempt IS NOT NULL
            AND coalesce(a.next_ns - a.end_ns > $silence_ns, false) AS silent
    FROM gp_attempts a
    LEFT JOIN gp_tails t ON t.attempt = a.attempt
    LEFT JOIN marks m ON m.attempt = a.attempt
)
SELECT attempt, mark_ns, silent,
    CASE
        WHEN outcome = 'finished' THEN 'finished'
        WHEN outcome = 'live' THEN 'live'
        WHEN coalesce(hung, false) OR silent THEN 'hang'
        WHEN coalesce(said_preempted, false) OR coalesce(grant_reason IN ('preempted', 'maintenance', 'timeout'), false)
            THEN 'preempted'
        WHEN seen OR grant_reason IS NOT NULL THEN 'crash'
        ELSE 'lost'
    END AS end_cause
FROM judged
