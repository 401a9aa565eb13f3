-- Decides among the copies of an event: one stays, the others are counted.
-- In: copies (source_id, seq, run_id, kind, pos, line): every copy of the events that came more than once, the one
--   already landed with pos NULL; displaced (source_id, seq, line): contents that lost before.
-- Out: contents: one row per event and content, `wins` for the smallest line in byte order; displaced and delivery
--   brought up to date. An event that came n times in m contents counts n - m duplicates and m - 1 conflicts, each
--   in the run that its content names, so the order of delivery makes no difference.
CREATE OR REPLACE TEMP TABLE contents AS
SELECT c.source_id, c.seq, c.line, c.run_id, c.kind, c.new_copies, c.first_pos, c.landed,
    c.landed OR d.line IS NOT NULL AS known,
    c.line = min(c.line) OVER (PARTITION BY c.source_id, c.seq) AS wins
FROM (
    SELECT source_id, seq, line, any_value(run_id) AS run_id, any_value(kind) AS kind,
        count(pos) AS new_copies, min(pos) AS first_pos, bool_or(pos IS NULL) AS landed
    FROM copies GROUP BY source_id, seq, line
) c LEFT JOIN displaced d ON d.source_id = c.source_id AND d.seq = c.seq AND d.line = c.line;

CREATE OR REPLACE TEMP TABLE delivered AS
SELECT run_id,
    CAST(sum(new_copies - CASE WHEN known THEN 0 ELSE 1 END) AS BIGINT) AS duplicates,
    count(*) FILTER (WHERE NOT wins AND (landed OR NOT known)) AS conflicts
FROM contents GROUP BY run_id;

INSERT INTO displaced SELECT source_id, seq, line FROM contents WHERE NOT wins AND (landed OR NOT known);

UPDATE delivery SET duplicates = delivery.duplicates + n.duplicates, conflicts = delivery.conflicts + n.conflicts
FROM delivered n WHERE n.run_id IS NOT DISTINCT FROM delivery.run_id;
INSERT INTO delivery
SELECT run_id, duplicates, conflicts FROM delivered n
WHERE (duplicates > 0 OR conflicts > 0)
    AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.run_id IS NOT DISTINCT FROM n.run_id);
