-- Purpose: the steps of every rank with the life that each belongs to.
-- Inputs:  gp_open_steps, gp_segments
-- Grain:   one row per step event of a process with a start.
-- Columns: closed  it is kept reduced, and what is left of it counts no more
--          seq, step, start_ns, end_ns  as in gp_open_steps; part, from_seq, life_id, whole, alone  of its segment
-- Algorithm: a view. Of a few segments each row is held against each; among many the last one begun is looked up.
CREATE OR REPLACE TEMP VIEW gp_lived_steps AS
SELECT g.source_id, g.part, g.from_seq, g.life_id, g.whole, g.alone, r.step < g.closed_below AS closed, r.seq, r.step,
    r.start_ns, r.end_ns
FROM gp_open_steps r
JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq AND NOT g.many
UNION ALL
SELECT g.source_id, g.part, g.from_seq, g.life_id, g.whole, g.alone, r.step < g.closed_below AS closed, r.seq, r.step,
    r.start_ns, r.end_ns
FROM (SELECT * FROM gp_open_steps WHERE source_id IN (SELECT source_id FROM gp_segments WHERE many)) r
ASOF JOIN (SELECT * FROM gp_segments WHERE many AND to_seq >= from_seq) g
    ON g.source_id = r.source_id AND r.seq >= g.from_seq
WHERE r.seq <= g.to_seq
