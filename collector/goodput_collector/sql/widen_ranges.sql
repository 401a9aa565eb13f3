-- Adds the batch's sequence numbers to the landed ranges.
-- In: batch_ranges, source_ranges. Out: source_ranges, one row per source.
CREATE OR REPLACE TEMP TABLE wider_ranges AS
SELECT b.source_id, least(b.min_seq, r.min_seq) AS min_seq, greatest(b.max_seq, r.max_seq) AS max_seq
FROM batch_ranges b LEFT JOIN source_ranges r ON r.source_id = b.source_id;
DELETE FROM source_ranges WHERE source_id IN (SELECT source_id FROM wider_ranges);
INSERT INTO source_ranges SELECT source_id, min_seq, max_seq FROM wider_ranges;
