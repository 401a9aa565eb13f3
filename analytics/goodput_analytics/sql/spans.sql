-- Purpose: the declared spans of every rank, with ends made up for those that never came.
-- Inputs:  gp_events, gp_rank_steps, gp_open_steps, gp_segments, gp_clocks, gp_gone, gp_attempts, gp_windows
-- Grain:   one row per span begun before its attempt's end.
-- Columns: begin_ns, end_ns   aligned, within the attempt
--          name, category, kind_rank   kind_rank orders overlapping spans: 1 checkpoint, 2 evaluation, 3 a startup
--                             kind, 4 any other
--          step, async, ok    ok is NULL while no end came
--          closed             its end came, before the attempt's end
--          open               still open when the attempt ended
--          blocking_end_ns    where it ceased to block: the start of a step that every rank began and ended inside it
-- Algorithm: begin and end are paired by name and id within the source. An end that never came, or came after the
--            attempt's end, is made up for by the start of
--            the source's next step, or the end of the step around it, or its stop, or the attempt's end.
CREATE OR REPLACE TEMP TABLE gp_spans AS
WITH told AS (
    SELECT *,
        lead(kind) OVER same AS next_kind, lead(ts_ns) OVER same AS next_ns,
        lead(step) OVER same AS next_step, lead(flag) OVER same AS next_ok
    FROM gp_events WHERE kind IN ('begin', 'end')
    WINDOW same AS (PARTITION BY source_id, part, word, detail ORDER BY seq)
),
begun AS (
    SELECT
        row_number() OVER () AS span_id,
        t.attempt, t.source_id, t.part, t.rank, t.seq, t.word AS name, t.ts_ns AS begin_ns, t.flag AS async, t.category,
        coalesce(t.step, CASE WHEN t.next_kind = 'end' AND t.next_ns <= a.end_ns THEN t.next_step END) AS step,
        CASE WHEN t.next_kind = 'end' AND t.next_ns <= a.end_ns THEN greatest(t.next_ns, t.ts_ns) END AS told_end_ns,
        CASE WHEN t.next_kind = 'end' AND t.next_ns <= a.end_ns THEN t.next_ok END AS told_ok,
        CASE WHEN t.next_kind = 'end' THEN t.next_ns < t.ts_ns ELSE false END AS backwards,
        a.end_ns AS attempt_end_ns
    FROM told t JOIN gp_attempts a USING (attempt)
    WHERE t.kind = 'begin' AND t.ts_ns <= a.end_ns
),
open_sources AS (SELECT DISTINCT attempt, source_id FROM begun WHERE told_end_ns IS NULL),
own_steps AS (
    SELECT g.attempt, r.source_id, r.start_ns - k.offset_ns AS start_ns, r.end_ns - k.offset_ns AS end_ns
    FROM (
        FROM gp_open_steps
        UNION ALL
        FROM gp_rank_steps WHERE start_ns < getvariable('gp_open_from_ns')
            AND source_id IN (SELECT source_id FROM gp_segments WHERE gone_below > 0)
    ) r
    JOIN open_sources o USING (source_id)
    JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq AND g.attempt = o.attempt
    JOIN gp_clocks k ON k.source_id = r.source_id AND k.life_id = g.life_id AND k.block = r.step // 1000
),
made_up AS (
    SELECT b.span_id, n.start_ns AS next_start_ns, CASE WHEN w.end_ns > b.begin_ns THEN w.end_ns END AS around_end_ns,
        s.stop_ns
    FROM begun b
    ASOF LEFT JOIN own_steps n ON n.attempt = b.attempt AND n.source_id = b.source_id AND n.start_ns > b.begin_ns
    ASOF LEFT JOIN own_steps w ON w.attempt = b.attempt AND w.source_id = b.source_id AND w.start_ns <= b.begin_ns
    LEFT JOIN gp_gone s ON s.source_id = b.source_id AND s.part = b.part
    WHERE b.told_end_ns IS NULL
),
ended AS (
    SELECT b.*,
        CASE
            WHEN b.told_end_ns IS NOT NULL THEN b.told_end_ns
            ELSE coalesce(m.next_start_ns, m.around_end_ns,
                CASE WHEN m.stop_ns < b.begin_ns THEN b.begin_ns ELSE m.stop_ns END)
        END AS found_end_ns
    FROM begun b LEFT JOIN made_up m USING (span_id)
),
clipped AS (
    SELECT * EXCLUDE (told_end_ns, told_ok, attempt_end_ns, found_end_ns),
        told_ok AS ok,
        told_end_ns IS NOT NULL AS closed,
        told_end_ns IS NULL AND coalesce(found_end_ns >= attempt_end_ns, true) AS open,
        least(coalesce(found_end_ns, attempt_end_ns), attempt_end_ns) AS end_ns,
        CASE
            WHEN name = 'checkpoint' THEN 1
            WHEN name = 'evaluation' THEN 2
            WHEN name IN ('init', 'rendezvous', 'load_checkpoint', 'compile', 'data_skip') THEN 3
            ELSE 4
        END AS kind_rank
    FROM ended
)
SELECT c.* EXCLUDE (category),
    CASE
        WHEN kind_rank = 1 THEN 'checkpoint'
        WHEN kind_rank = 2 THEN 'evaluation'
        WHEN kind_rank = 3 THEN 'startup'
        WHEN category IN ('productive', 'startup', 'checkpoint', 'rework', 'hang', 'straggler', 'data_wait',
            'evaluation', 'unattributed', 'idle') THEN category
        ELSE 'unattributed'
    END AS category,
    CASE WHEN w.last_end_ns <= c.end_ns THEN w.first_start_ns ELSE c.end_ns END AS blocking_end_ns
FROM clipped c
ASOF LEFT JOIN gp_windows w ON w.attempt = c.attempt AND w.first_start_ns >= c.begin_ns
