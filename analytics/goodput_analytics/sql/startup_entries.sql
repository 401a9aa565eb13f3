-- Purpose: the time before each attempt's first step, and after its end while its GPUs are still held.
-- Inputs:  gp_attempts, gp_end_causes, gp_tails, gp_covers, gp_allocations
-- Grain:   one row per entry: exclusive intervals.
-- Columns: category, phase; start_ns, end_ns; held_by  the attempt whose GPUs they are where no allocation says it
--          place  before the first step, after the end, or in the silence after it
-- Algorithm: from the previous attempt's release (or the allocation's start, or the first process's start) to the first
--            step: restart up to the first process, then the declared spans' names, launch before the first start event,
--            init after it. After an abort to the release: teardown. A silence after an end that nobody saw is hang
--            when it was long, else restart.
CREATE OR REPLACE TEMP TABLE gp_startup_entries AS
WITH lives AS (
    SELECT a.*, t.first_step_ns, coalesce(least(t.first_step_ns, a.end_ns), a.end_ns) AS started_ns,
        c.silent
    FROM gp_attempts a
    JOIN gp_end_causes c ON c.attempt = a.attempt
    LEFT JOIN gp_tails t ON t.attempt = a.attempt
),
grant_starts AS (
    SELECT l.attempt, min(g.start_ns) AS start_ns
    FROM lives l JOIN gp_allocations g ON g.job = l.job AND g.start_ns <= l.process_ns GROUP BY l.attempt
),
silences AS (
    SELECT attempt, end_ns AS start_ns, next_ns AS end_ns, previous_attempt, next_job_ns FROM lives WHERE silent
),
bounds AS (
    SELECT l.*, s.end_ns AS silence_end_ns,
        CASE
            WHEN l.previous_attempt IS NULL THEN least(l.process_ns, coalesce(g.start_ns, l.process_ns))
            ELSE l.begin_ns
        END AS hold_ns
    FROM lives l
    LEFT JOIN grant_starts g ON g.attempt = l.attempt
    LEFT JOIN silences s ON s.attempt = l.previous_attempt
),
before AS (
    SELECT attempt, process_ns, told_ns, started_ns, hold_ns, previous_attempt,
        greatest(hold_ns, least(coalesce(silence_end_ns, hold_ns), process_ns)) AS from_ns
    FROM bounds
),
spans AS (
    SELECT b.attempt, greatest(c.start_ns, b.process_ns, b.from_ns) AS start_ns, least(c.end_ns, b.started_ns) AS end_ns,
        c.name
    FROM before b JOIN gp_covers c
        ON c.attempt = b.attempt AND c.start_ns < b.started_ns AND c.end_ns > greatest(b.process_ns, b.from_ns)
),
cuts AS (
    SELECT attempt, from_ns AS at_ns FROM before
    UNION SELECT attempt, least(greatest(process_ns, from_ns), started_ns) FROM before
    UNION SELECT attempt, least(greatest(told_ns, process_ns, from_ns), started_ns) FROM before
    UNION SELECT attempt, started_ns FROM before
    UNION SELECT attempt, start_ns FROM spans
    UNION SELECT attempt, end_ns FROM spans
),
pieces AS (
    SELECT attempt, at_ns AS start_ns, lead(at_ns) OVER (PARTITION BY attempt ORDER BY at_ns) AS end_ns FROM cuts
),
phased AS (
    SELECT p.attempt, p.start_ns, p.end_ns,
        CASE
            WHEN p.end_ns <= b.process_ns AND b.previous_attempt IS NOT NULL THEN 'restart'
            WHEN s.name IS NOT NULL THEN s.name
            WHEN p.end_ns <= b.told_ns THEN 'launch'
            ELSE 'init'
        END AS phase,
        CASE WHEN p.end_ns <= b.process_ns THEN coalesce(b.previous_attempt, p.attempt) ELSE p.attempt END AS held_by
    FROM pieces p
    JOIN before b ON b.attempt = p.attempt
    LEFT JOIN spans s ON s.attempt = p.attempt AND s.start_ns <= p.start_ns AND s.end_ns >= p.end_ns
    WHERE p.end_ns > p.start_ns AND p.start_ns >= b.from_ns
)
SELECT attempt, 'startup' AS category, phase, start_ns, end_ns, held_by, 'before' AS place FROM phased
UNION ALL
SELECT attempt, CASE WHEN outcome = 'finished' THEN 'idle' ELSE 'startup' END,
    CASE WHEN outcome = 'finished' THEN NULL ELSE 'teardown' END, greatest(end_ns, begin_ns), release_ns,
    attempt, 'after'
FROM lives WHERE release_ns > greatest(end_ns, begin_ns)
UNION ALL
SELECT l.attempt, 'hang', 'silent', l.end_ns, l.next_ns, l.attempt, 'silence'
FROM lives l
WHERE l.silent AND (l.next_job_ns IS NOT NULL OR EXISTS (SELECT 1 FROM gp_allocations g WHERE g.job = l.job))
