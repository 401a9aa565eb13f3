-- Whether events may have come before: the ranges of sequence numbers, in the batch and landed.
-- In: keys (pos, run_id, source_id, seq), source_ranges. Out: batch_ranges (source_id, min_seq, max_seq), one row per
--   source; overlapping (source_id): the sources whose two ranges meet.
CREATE OR REPLACE TEMP TABLE batch_ranges AS
SELECT source_id, min(seq) AS min_seq, max(seq) AS max_seq FROM keys GROUP BY source_id;
CREATE OR REPLACE TEMP TABLE overlapping AS
SELECT b.source_id FROM batch_ranges b
JOIN source_ranges r ON r.source_id = b.source_id AND b.min_seq <= r.max_seq AND b.max_seq >= r.min_seq;
