-- Purpose: all rows of the ranks that are named as slow, of whom something was not kept in their place.
-- Inputs:  gp_rank_steps, gp_slow_segments
-- Grain:   as gp_rank_steps.
-- Algorithm: a view, in the place of the one of slow_steps.sql. Of other ranks still only what is not kept.
CREATE OR REPLACE TEMP VIEW gp_slow_steps AS
SELECT r.* FROM (SELECT * FROM gp_rank_steps WHERE source_id IN (SELECT source_id FROM gp_slow_segments)) r
SEMI JOIN gp_slow_segments g
    ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
    AND (NOT g.measured OR r.step < g.gone_below OR r.step >= g.closed_below)
