-- Whether the staged steps of each source lie one after another, in order of seq: 1 if so.
-- In: staged_step, batch_tips (one row per run and source).
SELECT (count(*) FILTER (NOT coalesce(follows, false)) = (SELECT count(*) FROM batch_tips)
    AND count(*) FILTER (follows AND seq <= last_seq) = 0)::INTEGER
FROM (
    SELECT seq, run_id = lag(run_id) OVER () AND source_id = lag(source_id) OVER () AS follows, lag(seq) OVER () AS last_seq
    FROM staged_step
)
