-- Purpose: how each attempt began, how it ended, and what it held.
-- Inputs:  gp_gone, gp_events, gp_windows, gp_allocations; $now_ns
-- Grain:   one row per attempt.
-- Columns: job, job_key    job_key stands for the attempt itself where no job is known
--          world_size, gpus             gpus driven: world size x devices
--          process_ns, told_ns          the first process's start; the first start event
--          ranks                        processes that ever reported
--          outcome                      finished, aborted or live
--          end_ns                       the finish, the abort, or now
--          release_ns                   when the last rank that was seen to go went
--          begin_ns                     from when on the job's GPUs are this attempt's: the release of those before it,
--                                       or its first process's start
--          seen                         somebody was seen to go
--          next_ns, next_job_ns         the next attempt's first process's start: of the run; of the job
--          previous_attempt             the attempt before in the job
--          last_event_ns                heartbeats included
--          ends_with_grant              the end is that of the allocation
--          grant_reason                 why the allocation ended, for the last attempt in it
-- Algorithm: finished when more than half of the ranks said so. Otherwise an abort is the later of two moments: when
--            more than half of the ranks that said an abnormal stop had said it, and when more than half of all had
--            gone, if so many went; if neither is known when the last that was seen to go went; if nobody was seen:
--            the allocation's end if it came before the next attempt, else the last event. An attempt keeps the
--            job's GPUs no longer than to the first step of a later one (a step after that one's own end is none).
CREATE OR REPLACE TEMP TABLE gp_attempts AS
WITH job_votes AS (
    SELECT attempt, job, count(*) AS votes, min(rank) AS lowest FROM gp_gone WHERE job IS NOT NULL GROUP BY attempt, job
),
jobs AS (
    SELECT attempt, job FROM job_votes
    QUALIFY row_number() OVER (PARTITION BY attempt ORDER BY votes DESC, lowest, job) = 1
),
rank_devices AS (
    SELECT attempt, rank, max(devices) AS devices FROM gp_gone GROUP BY attempt, rank
),
driven AS (
    SELECT attempt, count(*) AS reported, sum(devices) AS devices, max(devices) AS most FROM rank_devices GROUP BY attempt
),
counted AS (
    SELECT
        attempt, max(world_size) AS world_size, min(process_ns) AS process_ns, min(told_ns) AS told_ns, count(*) AS ranks,
        count(*) FILTER (finished) AS finished_ranks,
        list_sort(list(stop_ns) FILTER (stop_ns IS NOT NULL AND NOT finished)) AS bad_ns,
        list_sort(list(gone_ns) FILTER (gone_ns IS NOT NULL)) AS gone_ns,
        max(stop_ns) AS last_stop_ns,
        arg_max(NOT finished, stop_ns) FILTER (stop_ns IS NOT NULL) AS last_stop_bad,
        count(*) FILTER (stop_ns IS NULL AND exit_ns IS NOT NULL) AS vanished,
        bool_or(stop_reason = 'preempted') AS said_preempted
    FROM gp_gone GROUP BY attempt
),
lives AS (
    SELECT attempt, life, arg_min(first_start_ns, step) AS first_step_ns, arg_min(first_end_ns, step) AS first_done_ns,
        max(last_end_ns) AS last_step_ns
    FROM gp_windows GROUP BY attempt, life
),
first_steps AS (
    SELECT attempt, arg_min(first_step_ns, life) AS first_step_ns, arg_min(first_done_ns, life) AS first_done_ns,
        max(last_step_ns) AS last_step_ns
    FROM lives GROUP BY attempt
),
last_events AS (
    SELECT attempt, max(ts_ns) AS last_ns
    FROM (SELECT attempt, ts_ns FROM gp_events WHERE kind <> 'exit'
          UNION ALL SELECT attempt, last_told_ns FROM gp_gone)
    GROUP BY attempt
),
joined AS (
    SELECT
        c.*, j.job, coalesce('job ' || j.job, 'attempt ' || c.attempt::VARCHAR) AS job_key,
        least(d.devices + greatest(c.world_size - d.reported, 0)::HUGEINT * d.most, 9007199254740992)::BIGINT AS gpus,
        e.last_ns AS last_event_ns, f.first_step_ns, f.first_done_ns, f.last_step_ns
    FROM counted c JOIN driven d USING (attempt) LEFT JOIN jobs j USING (attempt)
    LEFT JOIN last_events e USING (attempt) LEFT JOIN first_steps f USING (attempt)
),
ordered AS (
    SELECT *,
        lead(process_ns) OVER (ORDER BY attempt) AS next_ns,
        lead(process_ns) OVER (PARTITION BY job_key ORDER BY attempt) AS next_job_ns,
        lag(attempt) OVER (PARTITION BY job_key ORDER BY attempt) AS previous_attempt
    FROM joined
),
grant_ends AS (
    SELECT o.attempt, min(g.end_ns) AS grant_end_ns
    FROM ordered o JOIN (
        SELECT job, chain, max(end_ns) AS end_ns, bool_or(open) AS open FROM gp_allocations GROUP BY job, chain
    ) g ON g.job = o.job AND NOT g.open AND g.end_ns > o.process_ns
    GROUP BY o.attempt
),
grants AS (
    SELECT o.attempt, e.grant_end_ns, a.end_reason
    FROM ordered o LEFT JOIN grant_ends e USING (attempt)
    LEFT JOIN gp_allocations a ON a.job = o.job AND a.end_ns = e.grant_end_ns AND NOT a.open
    QUALIFY row_number() OVER (PARTITION BY o.attempt ORDER BY a.start_ns DESC) = 1
),
judged AS (
    SELECT o.*, g.grant_end_ns, g.end_reason,
        CASE
            WHEN 2 * finished_ranks > ranks THEN 'finished'
            WHEN len(bad_ns) > 0 OR vanished > 0 OR next_ns IS NOT NULL OR grant_end_ns IS NOT NULL THEN 'aborted'
            ELSE 'live'
        END AS outcome,
        CASE WHEN len(bad_ns) > 0 THEN bad_ns[len(bad_ns) // 2 + 1] END AS most_said_ns,
        CASE WHEN 2 * len(gone_ns) > ranks THEN gone_ns[ranks // 2 + 1] END AS most_gone_ns
    FROM ordered o LEFT JOIN grants g USING (attempt)
),
ended AS (
    SELECT *,
        coalesce(len(gone_ns) > 0, false) AS seen,
        -- Whatever clocks and words say, nothing ended before it began.
        greatest(process_ns, CASE
            WHEN outcome = 'finished' THEN last_stop_ns
            WHEN outcome = 'live' THEN greatest($now_ns, last_step_ns)
            WHEN most_said_ns IS NOT NULL OR most_gone_ns IS NOT NULL THEN greatest(most_said_ns, most_gone_ns)
            WHEN len(gone_ns) > 0 THEN gone_ns[-1]
            WHEN grant_end_ns < coalesce(next_ns, 9223372036854775807) THEN grant_end_ns
            ELSE last_event_ns
        END) AS raw_end_ns
    FROM judged
),
stepped AS (
    SELECT *, coalesce(min(CASE WHEN first_done_ns <= raw_end_ns THEN first_step_ns END) OVER (
            PARTITION BY job_key ORDER BY attempt ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 9223372036854775807)
        AS cap_ns
    FROM ended
),
capped AS (
    SELECT *,
        least(raw_end_ns, cap_ns) AS end_ns,
        least(greatest(raw_end_ns, CASE WHEN outcome <> 'live' THEN gone_ns[-1] END), cap_ns) AS release_ns
    FROM stepped
)
SELECT
    attempt, job, job_key, world_size, gpus, process_ns, told_ns, ranks, outcome, seen, said_preempted, last_stop_bad,
    next_ns, next_job_ns, previous_attempt, last_event_ns, end_ns, greatest(end_ns, release_ns) AS release_ns,
    coalesce(max(greatest(end_ns, release_ns)) OVER (PARTITION BY job_key ORDER BY attempt
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), process_ns) AS begin_ns,
    outcome = 'aborted' AND NOT seen AND coalesce(grant_end_ns < coalesce(next_ns, 9223372036854775807), false)
        AS ends_with_grant,
    CASE WHEN next_job_ns IS NULL THEN end_reason END AS grant_reason
FROM capped
