-- Room for the copies of events, and the keys that may be in the landed tables already.
-- In: keys, overlapping. Out: copies (empty), overlapping_keys (source_id, seq).
CREATE OR REPLACE TEMP TABLE copies
    (source_id INTEGER, seq BIGINT, run_id INTEGER, kind VARCHAR, pos BIGINT, line VARCHAR);
CREATE OR REPLACE TEMP TABLE overlapping_keys AS
SELECT DISTINCT source_id, seq FROM keys SEMI JOIN overlapping USING (source_id);
