-- Keeps complete blocks of steps reduced, beside their rows; what was kept of these steps before goes.
-- In: early_closing (anchor, from_step, below), early_steps, early_groups, early_clocks, early_marks: as the relations
--   gp_closing... of the analytics, of one run; the connection's variable early_run_id.
-- Out: kept_steps, kept_groups, kept_clocks, closed_early; kept_measures and measured_early, of which that goes.
-- What was closed meanwhile, so that rows of ranks have gone, stays as it is.
CREATE OR REPLACE TEMP TABLE early_members AS
SELECT m.source_id, m.anchor_id, c.from_step
FROM early_marks m JOIN early_closing c ON c.anchor = m.anchor_id
WHERE m.anchor_id NOT IN (
    SELECT o.anchor_id FROM early_marks o
    JOIN closed_steps s ON s.source_id = o.source_id
    JOIN early_closing p ON p.anchor = o.anchor_id AND s.below > p.from_step);
DELETE FROM kept_steps k USING early_members m WHERE m.source_id = k.source_id AND k.step >= m.from_step;
DELETE FROM kept_groups k USING early_members m WHERE m.source_id = k.source_id AND k.step >= m.from_step;
DELETE FROM kept_clocks k USING early_members m WHERE m.source_id = k.source_id AND k.block * 1000 >= m.from_step;
DELETE FROM kept_measures k USING early_members m WHERE m.source_id = k.source_id AND k.step >= m.from_step;
UPDATE measured_early SET below = m.from_step
FROM early_members m WHERE m.source_id = measured_early.source_id AND measured_early.below > m.from_step;
DELETE FROM closed_early e USING early_members m WHERE m.source_id = e.source_id;
INSERT INTO kept_steps
SELECT getvariable('early_run_id'), k.* FROM early_steps k WHERE k.source_id IN (SELECT anchor_id FROM early_members);
INSERT INTO kept_groups
SELECT getvariable('early_run_id'), k.* FROM early_groups k WHERE k.source_id IN (SELECT anchor_id FROM early_members);
INSERT INTO kept_clocks
SELECT getvariable('early_run_id'), k.* FROM early_clocks k WHERE k.source_id IN (SELECT source_id FROM early_members);
INSERT INTO closed_early
SELECT getvariable('early_run_id'), m.* FROM early_marks m WHERE m.source_id IN (SELECT source_id FROM early_members);
DROP TABLE early_members;
