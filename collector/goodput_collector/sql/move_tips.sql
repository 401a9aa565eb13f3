-- Moves on where the landed steps of each source end.
-- In: batch_tips. Out: step_tips, one row per run and source.
DELETE FROM step_tips t USING batch_tips b WHERE b.run_id = t.run_id AND b.source_id = t.source_id;
INSERT INTO step_tips SELECT run_id, source_id, seq, step, end_ns FROM batch_tips;
