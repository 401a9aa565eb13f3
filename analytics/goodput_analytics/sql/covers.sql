-- Purpose: at every moment the one declared span that the time belongs to.
-- Inputs:  gp_spans, gp_window_times (for the gap before a rollback's first step)
-- Grain:   one row per (attempt, start_ns): intervals that exclude one another.
-- Columns: name, category, step; start_ns, end_ns; restart  time before a rollback's first step that no span covers
-- Algorithm: spans in order of kind, then of begin; neighbours in that order that are alike are joined to islands, so
--            that a save of a thousand ranks is one. Every piece between two island ends goes to the best island over
--            it: the least kind_rank, among equals the one begun last.
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
cuts AS (
    SELECT attempt, begin_ns AS at_ns FROM islands UNION SELECT attempt, end_ns FROM islands
),
pieces AS (
    SELECT attempt, at_ns AS start_ns, lead(at_ns) OVER (PARTITION BY attempt ORDER BY at_ns) AS end_ns FROM cuts
)
SELECT p.attempt, p.start_ns, p.end_ns, i.name, i.category, i.step, i.kind_rank = 9 AS restart
FROM pieces p
JOIN islands i ON i.attempt = p.attempt AND i.begin_ns < p.end_ns AND i.end_ns > p.start_ns
WHERE p.end_ns IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY p.attempt, p.start_ns ORDER BY i.kind_rank, i.run_no DESC, i.island_no DESC) = 1
