-- Adds what the batch's steps are, reduced, to what is known of their blocks.
-- In: batch_blocks (as step_blocks, of the batch alone). Out: step_blocks, one row per run, source and block.
UPDATE step_blocks SET
    steps = step_blocks.steps + n.steps,
    first_seq = least(step_blocks.first_seq, n.first_seq), last_seq = greatest(step_blocks.last_seq, n.last_seq),
    top_step = greatest(step_blocks.top_step, n.top_step),
    first_start_ns = least(step_blocks.first_start_ns, n.first_start_ns),
    first_end_ns = least(step_blocks.first_end_ns, n.first_end_ns),
    last_end_ns = greatest(step_blocks.last_end_ns, n.last_end_ns),
    last_told_ns = greatest(step_blocks.last_told_ns, n.last_told_ns),
    backwards = step_blocks.backwards + n.backwards,
    back = step_blocks.back OR n.back, again = step_blocks.again OR n.again
FROM batch_blocks n
WHERE n.run_id = step_blocks.run_id AND n.source_id = step_blocks.source_id AND n.block = step_blocks.block;
INSERT INTO step_blocks
FROM batch_blocks n
WHERE NOT EXISTS (
    FROM step_blocks b WHERE b.run_id = n.run_id AND b.source_id = n.source_id AND b.block = n.block);
