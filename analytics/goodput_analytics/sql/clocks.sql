-- Purpose: how far each rank's clock is ahead of its peers', block by block.
-- Inputs:  gp_lived_steps, gp_step_blocks, gp_segments, gp_shared_steps, kept_clocks
-- Grain:   one row per (source_id, life_id, block); block = step // 1000.
-- Columns: from_ns    the rank's first step's start in that block, own clock
--          offset_ns  to be taken off the rank's times
-- Algorithm: the ranks leave a synchronous step together, so the median over shared steps of (own end - mid_ns) is
--            the offset; a block without shared steps takes the nearest earlier block's, else the next one's, else 0.
--            (The outer join keeps the rows of ranks on the probing side.)
CREATE OR REPLACE TEMP TABLE gp_clocks AS
WITH told AS (
    SELECT r.source_id, r.step // 1000 AS block, quantile_disc(r.end_ns - s.mid_ns, [0.5, 0.5000000001]) AS middle
    FROM gp_lived_steps r
    LEFT JOIN gp_shared_steps s ON s.life_id = r.life_id AND s.step = r.step
    WHERE NOT r.alone AND NOT r.closed
    GROUP BY r.source_id, block
    HAVING count(s.mid_ns) > 0
    UNION ALL
    SELECT c.source_id, c.block, [c.offset_ns, c.offset_ns]
    FROM kept_clocks c JOIN gp_segments g
        ON g.source_id = c.source_id AND g.life = 0 AND g.from_seq = -1 AND c.block * 1000 < g.closed_below
    WHERE c.run_id = getvariable('gp_run_id')
),
seen AS (
    SELECT g.source_id, g.life_id, b.block, b.first_start_ns AS from_ns
    FROM gp_step_blocks b JOIN gp_segments g ON g.source_id = b.source_id AND g.part = b.part AND g.whole
    UNION ALL
    SELECT source_id, life_id, step // 1000 AS block, min(start_ns)
    FROM gp_lived_steps WHERE NOT whole
    GROUP BY source_id, life_id, block
)
SELECT s.source_id, s.life_id, s.block, s.from_ns, coalesce(middle_ns(e.middle), middle_ns(n.middle), 0) AS offset_ns
FROM seen s
ASOF LEFT JOIN told e ON e.source_id = s.source_id AND s.block >= e.block
ASOF LEFT JOIN told n ON n.source_id = s.source_id AND s.block < n.block
