-- Purpose: the rows of ranks that are left of the steps to be closed, because something still asks for single ones.
-- Inputs:  gp_closing, gp_segments, gp_rank_steps, gp_named_ranks, gp_spans, gp_clocks, ev_step
-- Grain:   one row per (source_id, seq).
-- Algorithm: left are: the losses that the lowest rank told; the steps of ranks that are named as slow; of each process and
--            block the first, and of each process the last; the steps on either side of the beginning of a span whose
--            end never came.
CREATE OR REPLACE TEMP TABLE gp_closing_rows AS
WITH closing AS (
    SELECT g.attempt, g.source_id, g.rank, g.life_id, c.from_step, c.below
    FROM gp_segments g JOIN gp_closing c ON c.attempt = g.attempt
),
steps AS (
    SELECT c.attempt, c.rank, r.source_id, r.seq, r.step, r.start_ns - k.offset_ns AS start_ns
    FROM gp_rank_steps r
    JOIN closing c ON c.source_id = r.source_id AND r.step < c.below
    JOIN gp_clocks k ON k.source_id = r.source_id AND k.life_id = c.life_id AND k.block = r.step // 1000
),
tellers AS (
    SELECT c.attempt, c.source_id, c.rank FROM closing c
    WHERE c.source_id IN (
        SELECT source_id FROM ev_step
        WHERE run_id = getvariable('gp_run_id') AND loss IS NOT NULL AND isfinite(loss))
),
told AS (
    SELECT t.source_id FROM tellers t
    WHERE t.rank = (SELECT min(o.rank) FROM tellers o WHERE o.attempt = t.attempt)
),
begun AS (
    SELECT s.attempt, s.source_id, s.begin_ns FROM gp_spans s
    WHERE NOT s.closed AND s.attempt IN (SELECT attempt FROM gp_closing)
)
SELECT source_id, seq FROM steps WHERE source_id IN (SELECT source_id FROM told)
UNION
SELECT s.source_id, s.seq FROM steps s SEMI JOIN gp_named_ranks n ON n.attempt = s.attempt AND n.rank = s.rank
UNION
SELECT source_id, min(seq) FROM steps GROUP BY source_id, step // 1000
UNION
SELECT source_id, max(seq) FROM steps GROUP BY source_id
UNION
SELECT s.source_id, s.seq FROM begun b ASOF JOIN steps s ON s.source_id = b.source_id AND s.start_ns > b.begin_ns
UNION
SELECT s.source_id, s.seq FROM begun b ASOF JOIN steps s ON s.source_id = b.source_id AND s.start_ns <= b.begin_ns
