-- Purpose: what an attempt was doing when it ended, or is doing now.
-- Inputs:  gp_attempts, gp_window_parts, gp_segments, gp_limits, gp_rank_steps, gp_clocks, gp_events, gp_spans; $hang_floor_ns, $span_floor_ns
-- Grain:   one row per attempt with at least one window.
-- Columns: first_step_ns, steps_end_ns  its first step's start; its last window's end
--          mark_ns    the last proof of progress: the end of a step, the beginning or end of a span, a progress event,
--                     a heartbeat whose step had advanced
--          still_ns   from there to the end
--          activity   the innermost open span's name, else 'step'; open_category, open_step  that span's
--          limit_ns   beyond which the stillness is a hang; hung  whether it is
--          declared_ns  up to here declared spans keep their time: the last mark; in a finished attempt its end
--          paused     every rank's last heartbeat said that it was between steps
CREATE OR REPLACE TEMP TABLE gp_tails AS
WITH ends AS (
    SELECT w.attempt, min(w.begin_ns) AS first_step_ns, max(w.end_ns) AS steps_end_ns, max(w.idx) AS last_idx,
        arg_max(w.c, w.idx) AS last_c, arg_max(w.step, w.idx) AS last_step
    FROM gp_window_parts w GROUP BY w.attempt
),
known AS (
    SELECT g.source_id, g.part, arg_max(g.last_step, g.from_seq) AS step
    FROM gp_segments g JOIN gp_limits l ON l.attempt = g.attempt
    WHERE g.last_step IS NOT NULL AND NOT l.late
    GROUP BY g.source_id, g.part
    UNION ALL
    SELECT g.source_id, g.part, arg_max(r.step, r.seq)
    FROM gp_rank_steps r
    JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    JOIN gp_clocks k ON k.source_id = g.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
    JOIN gp_limits l ON l.attempt = g.attempt
    WHERE l.late AND r.end_ns - k.offset_ns <= l.until_ns
    GROUP BY g.source_id, g.part
),
advanced AS (
    SELECT v.attempt, v.ts_ns, v.step, k.step AS known_step,
        max(v.step) OVER (PARTITION BY v.source_id, v.part ORDER BY v.ts_ns, v.seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS step_before
    FROM gp_events v JOIN ends e USING (attempt)
    LEFT JOIN known k ON k.source_id = v.source_id AND k.part = v.part
    WHERE v.kind = 'heartbeat' AND v.step IS NOT NULL
),
marks AS (
    SELECT attempt, ts_ns FROM gp_events WHERE kind IN ('begin', 'end', 'progress')
    UNION ALL
    SELECT attempt, ts_ns FROM advanced WHERE step > greatest(known_step, step_before)
),
last_marks AS (
    SELECT m.attempt, max(m.ts_ns) AS mark_ns
    FROM marks m JOIN gp_attempts a USING (attempt) WHERE m.ts_ns <= a.end_ns GROUP BY m.attempt
),
innermost AS (
    SELECT * FROM gp_spans WHERE open
    QUALIFY row_number() OVER (PARTITION BY attempt ORDER BY begin_ns DESC, kind_rank, rank DESC, seq DESC, name) = 1
),
span_typical AS (
    SELECT i.attempt, middle_ns(quantile_disc(s.end_ns - s.begin_ns, [0.5, 0.5000000001])) AS typical_ns
    FROM innermost i JOIN gp_spans s ON s.name = i.name AND s.closed AND s.end_ns <= i.begin_ns
    GROUP BY i.attempt
),
last_windows AS (
    SELECT w.attempt, middle_ns(quantile_disc(w.net_ns // w.c, [0.5, 0.5000000001])) AS typical_ns
    FROM gp_window_parts w JOIN ends e USING (attempt)
    WHERE w.idx > 0 AND w.idx > e.last_idx - 25
    GROUP BY w.attempt
),
run_typical AS (
    SELECT middle_ns(quantile_disc(net_ns // c, [0.5, 0.5000000001])) AS typical_ns FROM gp_window_parts WHERE idx > 0
),
phases AS (
    SELECT attempt, source_id, arg_max(word, ts_ns) AS phase FROM gp_events WHERE kind = 'heartbeat'
    GROUP BY attempt, source_id
),
between AS (
    SELECT attempt, count(*) FILTER (phase = 'between') AS ranks FROM phases GROUP BY attempt
),
still AS (
    SELECT e.attempt, e.first_step_ns, e.steps_end_ns, e.last_c,
        greatest(e.steps_end_ns, coalesce(m.mark_ns, e.steps_end_ns)) AS mark_ns,
        i.name AS span, i.category AS span_category, i.step AS span_step, t.typical_ns AS span_typical_ns,
        coalesce(l.typical_ns, r.typical_ns, 0) AS step_typical_ns,
        coalesce(b.ranks >= a.ranks, false) AS paused,
        a.end_ns, a.outcome, coalesce(a.last_stop_bad, false) AS last_stop_bad
    FROM ends e
    JOIN gp_attempts a USING (attempt)
    LEFT JOIN last_marks m USING (attempt)
    LEFT JOIN innermost i ON i.attempt = e.attempt
    LEFT JOIN span_typical t ON t.attempt = e.attempt
    LEFT JOIN last_windows l ON l.attempt = e.attempt
    LEFT JOIN between b ON b.attempt = e.attempt
    CROSS JOIN run_typical r
),
judged AS (
    SELECT *,
        end_ns - mark_ns AS still_ns,
        coalesce(span, 'step') AS activity,
        CASE
            WHEN span IS NOT NULL THEN greatest($span_floor_ns, 3 * coalesce(span_typical_ns, 0))
            ELSE least(greatest($hang_floor_ns, 3 * step_typical_ns) + (last_c - 1)::HUGEINT * step_typical_ns,
                9223372036854775807)::BIGINT
        END AS limit_ns
    FROM still
)
SELECT attempt, first_step_ns, steps_end_ns, mark_ns, still_ns, activity, span_category AS open_category,
    span_step AS open_step, limit_ns,
    still_ns > limit_ns AS hung, paused,
    CASE WHEN outcome = 'finished' AND NOT (still_ns > limit_ns AND last_stop_bad) THEN end_ns ELSE mark_ns END
        AS declared_ns
FROM judged
