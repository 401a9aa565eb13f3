-- Counts the blocks of what landed before they were kept.
INSERT INTO step_blocks
SELECT run_id, source_id, step // 1000, count(*), min(seq), max(seq), max(step), min(start_ns),
    min(greatest(start_ns, end_ns)), max(greatest(start_ns, end_ns)), max(ts_ns), count_if(end_ns < start_ns),
    coalesce(bool_or(step < before_step), false), coalesce(bool_or(step = before_step), false)
FROM ev_step GROUP BY run_id, source_id, step // 1000;
