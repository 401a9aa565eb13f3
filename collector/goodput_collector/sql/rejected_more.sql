-- Counts the rejected lines that are not kept one by one.
-- In: goodput_more (stream_id, reason, lines), one row per stream and reason. Out: rejected_more.
UPDATE rejected_more SET lines = rejected_more.lines + n.lines
FROM goodput_more n WHERE n.stream_id = rejected_more.stream_id AND n.reason = rejected_more.reason;
INSERT INTO rejected_more
SELECT stream_id, reason, lines FROM goodput_more n
WHERE NOT EXISTS (FROM rejected_more m WHERE m.stream_id = n.stream_id AND m.reason = n.reason);
