-- Purpose: at every moment the one declared span that the time belongs to.
-- Inputs:  gp_spans, gp_window_times (for the gap before a rollback's first step)
-- Grain:   one row per (attempt, start_ns): intervals that exclude one another.
-- Columns: name, category, step; start_ns, end_ns; restart  time before a rollback's first step that no span covers
-- Algorithm: spans in order of kind, then of begin; neighbours in that order that are alike are joined to islands, so
--            that a save of a thousand ranks is one. Every piece between two island ends goes to the best island over
--            it: the least kind_rank, among equals the one begun last. An island lies over a row of pieces; that row is
--            laid out in blocks of 2^level pieces, each aligned to its size (two of a level at most), every block keeps
--            its best island, and a piece asks the blocks that it lies in: n log n, however deep islands lie in others.
CREATE OR REPLACE TEMP TABLE gp_covers AS
WITH all_spans AS (
    SELECT attempt, kind_rank, name, category, step, begin_ns, blocking_end_ns AS end_ns, seq, rank FROM gp_spans
    WHERE blocking_end_ns > begin_ns
    UNION ALL
    SELECT attempt, 9, 'restart', 'startup', NULL, begin_ns, start_ns, 0, 0 FROM gp_window_times
    WHERE new_life AND start_ns > begin_ns
),
marked AS (
    SELECT *,
        lag(name) OVER ordered AS name_before, lag(category) OVER ordered AS category_before,
        lag(step) OVER ordered AS step_before,
        row_number() OVER ordered AS place
    FROM all_spans
    WINDOW ordered AS (PARTITION BY attempt, kind_rank ORDER BY begin_ns, rank, seq, name, category, step, end_ns)
),
runs AS (
    SELECT *, sum((place = 1 OR name IS DISTINCT FROM name_before OR category IS DISTINCT FROM category_before
            OR step IS DISTINCT FROM step_before)::INTEGER)
        OVER (PARTITION BY attempt, kind_rank ORDER BY place) AS run_no
    FROM marked
),
reached AS (
    SELECT *, max(end_ns) OVER (PARTITION BY attempt, kind_rank, run_no ORDER BY place
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach_ns
    FROM runs
),
numbered AS (
    SELECT *, sum((reach_ns IS NULL OR begin_ns > reach_ns)::INTEGER)
        OVER (PARTITION BY attempt, kind_rank, run_no ORDER BY place) AS island_no
    FROM reached
),
islands AS (
    SELECT attempt, kind_rank, run_no, island_no, any_value(name) AS name, any_value(category) AS category,
        any_value(step) AS step, min(begin_ns) AS begin_ns, max(end_ns) AS end_ns
    FROM numbered GROUP BY attempt, kind_rank, run_no, island_no
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY attempt ORDER BY kind_rank, run_no DESC, island_no DESC) AS priority
    FROM islands
),
cuts AS (
    SELECT attempt, begin_ns AS at_ns FROM islands UNION SELECT attempt, end_ns FROM islands
),
pieces AS (
    SELECT attempt, at_ns AS start_ns, lead(at_ns) OVER own AS end_ns, row_number() OVER own - 1 AS place
    FROM cuts
    WINDOW own AS (PARTITION BY attempt ORDER BY at_ns)
),
laid AS (
    SELECT r.attempt, r.priority, b.place AS from_place, e.place AS to_place,
        unnest(range(length(bin(e.place - b.place)))) AS level
    FROM ranked r
    JOIN pieces b ON b.attempt = r.attempt AND b.start_ns = r.begin_ns
    JOIN pieces e ON e.attempt = r.attempt AND e.start_ns = r.end_ns
),
edges AS (
    SELECT attempt, priority, level, (from_place + (1::BIGINT << level) - 1) >> level AS from_block,
        to_place >> level AS to_block
    FROM laid
),
blocks AS (
    SELECT attempt, level, block, min(priority) AS priority
    FROM (
        SELECT attempt, priority, level, from_block AS block FROM edges WHERE from_block < to_block AND from_block % 2 = 1
        UNION ALL
        SELECT attempt, priority, level, to_block - 1 FROM edges WHERE from_block < to_block AND to_block % 2 = 1
    )
    GROUP BY attempt, level, block
),
asked AS (
    SELECT p.attempt, p.place, p.start_ns, p.end_ns, l.level, p.place >> l.level AS block
    FROM pieces p JOIN (SELECT DISTINCT attempt, level FROM blocks) l ON l.attempt = p.attempt
    WHERE p.end_ns IS NOT NULL
),
best AS (
    SELECT a.attempt, a.start_ns, a.end_ns, min(b.priority) AS priority
    FROM asked a JOIN blocks b ON b.attempt = a.attempt AND b.level = a.level AND b.block = a.block
    GROUP BY a.attempt, a.start_ns, a.end_ns
)
SELECT b.attempt, b.start_ns, b.end_ns, r.name, r.category, r.step, r.kind_rank = 9 AS restart
FROM best b JOIN ranked r ON r.attempt = b.attempt AND r.priority = b.priority
