-- The keys of the batch that came more than once.
-- In: keys, copies (those landed). Out: repeated_keys (source_id, seq).
CREATE OR REPLACE TEMP TABLE repeated_keys AS
SELECT source_id, seq FROM keys GROUP BY source_id, seq HAVING count(*) > 1
UNION
SELECT source_id, seq FROM copies;
