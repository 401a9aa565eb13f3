-- Purpose: the rows of the ranks that are named as slow, of steps of which nothing is kept in their place.
-- Inputs:  gp_open_steps, gp_rank_steps, gp_slow_segments; the connection's variables gp_open_from_ns, gp_gone_below
-- Grain:   as gp_rank_steps.
-- Algorithm: a view. What is left of steps whose rows have gone is old: their numbers are below gp_gone_below.
CREATE OR REPLACE TEMP VIEW gp_slow_steps AS
SELECT r.* FROM (
    SELECT * FROM gp_open_steps
    UNION ALL
    SELECT * FROM gp_rank_steps
    WHERE step < getvariable('gp_gone_below') AND start_ns < getvariable('gp_open_from_ns')
) r
SEMI JOIN gp_slow_segments g
    ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    AND (r.step < g.gone_below OR r.step >= g.closed_below)
