-- What becomes of each copy in the batch: the first of its event, the same as one before, or another content.
-- In: copies, contents. Out: repeats (pos, what, stays): `what` is 'first', 'same' or 'other', `stays` whether this
--   row is the one to land.
CREATE OR REPLACE TEMP TABLE repeats AS
SELECT p.pos,
    CASE WHEN c.known OR p.pos <> c.first_pos THEN 'same' WHEN c.wins AND NOT k.landed THEN 'first' ELSE 'other' END
        AS what,
    c.wins AND NOT c.landed AND p.pos = c.first_pos AS stays
FROM copies p
JOIN contents c ON c.source_id = p.source_id AND c.seq = p.seq AND c.line = p.line
JOIN (SELECT source_id, seq, bool_or(landed) AS landed FROM contents GROUP BY source_id, seq) k
    ON k.source_id = p.source_id AND k.seq = p.seq
WHERE p.pos IS NOT NULL;
