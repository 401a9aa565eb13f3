-- Fills in whom the plain steps belong to that do not say it themselves.
-- In: plain, marks. Out: plain, with run and source where something holds.
CREATE OR REPLACE TEMP TABLE filled AS
SELECT p.* REPLACE (coalesce(p.run, m.run) AS run, coalesce(p.source, m.source) AS source)
FROM plain p ASOF JOIN marks m ON p.pos >= m.pos;
DROP TABLE plain;
ALTER TABLE filled RENAME TO plain;
