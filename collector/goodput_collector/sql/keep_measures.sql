-- Keeps what the ranks that are named as slow did on their own, in steps that are kept reduced beside their rows.
-- In: early_measured (source_id, from_step, below, with_steps), early_measures, early_seen, early_marks: as the relations
--   gp_closing_... of the analytics, of one run; the connection's variable early_run_id.
-- Out: kept_measures, measured_early.
-- The steps must be kept as they were when the measures were taken: these were kept just now (early_marks), or were kept
--   then and are still (early_seen).
CREATE OR REPLACE TEMP TABLE early_ranks AS
SELECT m.source_id, m.from_step, m.below FROM early_measured m
WHERE m.with_steps AND m.source_id IN (
    SELECT source_id FROM (FROM early_marks INTERSECT SELECT * EXCLUDE (run_id) FROM closed_early WHERE run_id = getvariable('early_run_id')))
UNION ALL
SELECT m.source_id, m.from_step, m.below FROM early_measured m
WHERE NOT m.with_steps AND NOT EXISTS (
    FROM early_seen EXCEPT (FROM closed_early WHERE run_id = getvariable('early_run_id')));
DELETE FROM kept_measures k USING early_ranks m WHERE m.source_id = k.source_id AND k.step >= m.from_step;
DELETE FROM measured_early e USING early_ranks m WHERE m.source_id = e.source_id;
INSERT INTO kept_measures
SELECT getvariable('early_run_id'), k.* FROM early_measures k WHERE k.source_id IN (SELECT source_id FROM early_ranks);
INSERT INTO measured_early SELECT getvariable('early_run_id'), source_id, below FROM early_ranks;
DROP TABLE early_ranks;
