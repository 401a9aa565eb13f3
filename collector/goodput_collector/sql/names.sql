-- Gives new runs and sources their keys.
-- In: staged_names (run, source). Out: rows of runs and sources.
INSERT INTO runs
SELECT (SELECT coalesce(max(run_id), 0) FROM runs) + row_number() OVER (), run
FROM (SELECT DISTINCT run FROM staged_names WHERE run IS NOT NULL) ANTI JOIN runs USING (run);
INSERT INTO sources
SELECT (SELECT coalesce(max(source_id), 0) FROM sources) + row_number() OVER (), source
FROM (SELECT DISTINCT source FROM staged_names WHERE source IS NOT NULL) ANTI JOIN sources USING (source);
