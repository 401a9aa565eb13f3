-- What had been rejected before there was a bound is brought within it: the first 100 lines of each stream and reason.
INSERT INTO rejected_more
SELECT stream_id, reason, count(*) - 100 FROM rejected WHERE NOT pending
GROUP BY stream_id, reason HAVING count(*) > 100;
DELETE FROM rejected WHERE rowid IN (
    SELECT rowid FROM rejected WHERE NOT pending
    QUALIFY row_number() OVER (PARTITION BY stream_id, reason ORDER BY offset_bytes) > 100);
