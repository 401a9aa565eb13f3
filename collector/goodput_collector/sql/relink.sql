-- Links the steps of a few sources anew: those that came out of order, or of which one gave way to another content.
-- In: unlinked (source_id); closed_steps: of these few rows are left, whose links and blocks stay as they are.
-- Out: ev_step, every step of these sources beside the one before it; step_tips; step_blocks without the blocks of these
--   sources, and the view relinked: the steps that are to be counted in them anew.
CREATE OR REPLACE TEMP TABLE links AS
SELECT run_id, source_id, seq, step, greatest(start_ns, end_ns) AS end_ns,
    lag(step) OVER own AS before_step, lag(greatest(start_ns, end_ns)) OVER own AS before_end_ns,
    lead(seq) OVER own IS NULL AS newest
FROM ev_step WHERE source_id IN (SELECT source_id FROM unlinked)
WINDOW own AS (PARTITION BY run_id, source_id ORDER BY seq);
UPDATE ev_step e SET before_step = l.before_step, before_end_ns = l.before_end_ns
FROM links l
WHERE l.run_id = e.run_id AND l.source_id = e.source_id AND l.seq = e.seq
    AND NOT EXISTS (FROM closed_steps c WHERE c.source_id = e.source_id AND e.step < c.below)
    AND (l.before_step IS DISTINCT FROM e.before_step OR l.before_end_ns IS DISTINCT FROM e.before_end_ns);
DELETE FROM step_tips WHERE source_id IN (SELECT source_id FROM unlinked);
INSERT INTO step_tips SELECT run_id, source_id, seq, step, end_ns FROM links WHERE newest;
DELETE FROM step_blocks b WHERE source_id IN (SELECT source_id FROM unlinked)
    AND NOT EXISTS (FROM closed_steps c WHERE c.source_id = b.source_id AND b.block * 1000 < c.below);
CREATE OR REPLACE TEMP VIEW relinked AS
FROM ev_step e WHERE source_id IN (SELECT source_id FROM unlinked)
    AND NOT EXISTS (FROM closed_steps c WHERE c.source_id = e.source_id AND e.step < c.below);
