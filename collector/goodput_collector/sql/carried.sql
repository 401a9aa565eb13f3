-- What holds at each odd line that leaves run or source out.
-- In: odd, marks (pos, run, source): what holds from each place on. Out: carried (pos, run, source).
CREATE OR REPLACE TEMP TABLE carried AS
SELECT l.pos, m.run, m.source
FROM (SELECT pos FROM odd WHERE run IS NULL OR source IS NULL) l
ASOF JOIN marks m ON l.pos >= m.pos;
