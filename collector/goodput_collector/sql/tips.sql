-- Where the batch's steps begin and end in their sources, and which sources they come out of order in.
-- In: staged_step (the batch's steps that land), step_tips, unlinked (sources that lost a landed step).
-- Out: batch_tips (run_id, source_id, min_seq, seq, step, end_ns): the first and the last of the batch;
--   unlinked: with the sources whose steps here are not all newer than what landed before.
CREATE OR REPLACE TEMP TABLE batch_tips AS
SELECT run_id, source_id, min(seq) AS min_seq, max(seq) AS seq, arg_max(step, seq) AS step,
    arg_max(greatest(start_ns, end_ns), seq) AS end_ns
FROM staged_step GROUP BY run_id, source_id;
INSERT INTO unlinked
SELECT b.source_id FROM batch_tips b JOIN step_tips t ON t.run_id = b.run_id AND t.source_id = b.source_id
WHERE t.seq >= b.min_seq;
