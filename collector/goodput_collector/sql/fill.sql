-- Fills in whom the plain steps belong to that do not say it themselves.
-- In: plain; goodput_holding (run, source): what holds at each of its rows, one beside the other.
-- Out: plain, with run and source where something holds, its rows in the order in which they were: steps that lie one after
--   another need not be sorted.
CREATE OR REPLACE TEMP TABLE filled AS
SELECT p.* REPLACE (coalesce(p.run, h.run) AS run, coalesce(p.source, h.source) AS source)
FROM plain p POSITIONAL JOIN goodput_holding h;
DROP TABLE plain;
ALTER TABLE filled RENAME TO plain;
