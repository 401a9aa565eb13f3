-- Puts closed steps in the place of their rows of ranks.
-- In: closing_sources (run_id, source_id, from_step, below): the processes of the closed attempts; closing_steps,
--   closing_groups, closing_clocks; closing_rows: the rows that stay.
-- Out: kept_steps, kept_groups, kept_clocks, closed_steps (closed_early, kept_measures and measured_early go); ev_step without what is closed.
-- What was kept of these steps, and of later ones, while their rows were there, was not what is closed now.
DELETE FROM kept_steps k USING closing_sources s WHERE s.source_id = k.source_id AND k.step >= s.from_step;
DELETE FROM kept_groups k USING closing_sources s WHERE s.source_id = k.source_id AND k.step >= s.from_step;
DELETE FROM kept_clocks k USING closing_sources s WHERE s.source_id = k.source_id AND k.block * 1000 >= s.from_step;
DELETE FROM closed_early WHERE source_id IN (SELECT source_id FROM closing_sources);
DELETE FROM kept_measures WHERE source_id IN (SELECT source_id FROM closing_sources);
DELETE FROM measured_early WHERE source_id IN (SELECT source_id FROM closing_sources);
INSERT INTO kept_steps SELECT s.run_id, k.* FROM closing_steps k JOIN closing_sources s ON s.source_id = k.source_id;
INSERT INTO kept_groups SELECT s.run_id, k.* FROM closing_groups k JOIN closing_sources s ON s.source_id = k.source_id;
INSERT INTO kept_clocks SELECT s.run_id, k.* FROM closing_clocks k JOIN closing_sources s ON s.source_id = k.source_id;
DELETE FROM closed_steps WHERE source_id IN (SELECT source_id FROM closing_sources);
INSERT INTO closed_steps SELECT run_id, source_id, below FROM closing_sources;
DELETE FROM ev_step e USING closing_sources s
WHERE s.run_id = e.run_id AND s.source_id = e.source_id AND e.step < s.below
    AND NOT EXISTS (FROM closing_rows r WHERE r.source_id = e.source_id AND r.seq = e.seq);
