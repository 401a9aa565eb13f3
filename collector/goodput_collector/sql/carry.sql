-- Who a line without `run` or `source` belongs to: the last one named before it, unless something unreadable,
-- or the beginning of another stream, stands between.
-- In: plain, odd (pos, run, source; odd's as JSON text), goodput_marks (pos, run, source, breaks): where a stream
--   begins (with what carries over into it) and where something unreadable stands; goodput_lacking: whether a line
--   leaves one of the two out (else nobody asks what held before a stream's last plain line); goodput_begins (pos).
-- Rows: one for each place that says or ends something, in order of pos: what it says, and whether it ends what held.
SELECT pos, run, source, false AS breaks FROM plain
WHERE getvariable('goodput_lacking') AND (run IS NOT NULL OR source IS NOT NULL)
UNION ALL
SELECT max(p.pos), arg_max(p.run, p.pos), arg_max(p.source, p.pos), false
FROM plain p ASOF JOIN goodput_begins b ON p.pos >= b.pos
WHERE NOT getvariable('goodput_lacking')
GROUP BY b.pos
UNION ALL
SELECT pos, gp_text(run), gp_text(source),
    coalesce(NOT gp_is_text(run), false) OR coalesce(NOT gp_is_text(source), false)
FROM odd WHERE run IS NOT NULL OR source IS NOT NULL
UNION ALL
SELECT pos, run, source, breaks FROM goodput_marks
ORDER BY pos
