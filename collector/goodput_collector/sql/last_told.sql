-- When each run told of something last.
-- In: the landed tables. Out: run_id, ts_ns; one row per recorded run that told anything.
SELECT run_id, max(ts_ns) AS ts_ns FROM (
    SELECT run_id, max(last_told_ns) AS ts_ns FROM step_blocks GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_start GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_joined GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_resume GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_begin GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_end GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_durable GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_progress GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_heartbeat GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_stop GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_exit_observed GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_allocation WHERE run_id IS NOT NULL GROUP BY run_id
    UNION ALL SELECT run_id, max(ts_ns) FROM ev_dropped GROUP BY run_id
)
GROUP BY run_id
