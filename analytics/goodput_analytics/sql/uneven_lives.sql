-- Purpose: ranks of attempts whose ranks tell different numbers of rollbacks.
-- Inputs:  gp_members, gp_boundaries, gp_rank_steps
-- Grain:   one row per rank of such an attempt.
-- Columns: full    it tells as many as any; leads  the lowest of those, whom the others follow
CREATE OR REPLACE TEMP TABLE gp_uneven_lives AS
WITH counted AS (
    SELECT m.attempt, m.source_id, m.part, m.rank, m.source, count(b.seq) AS cuts
    FROM gp_members m LEFT JOIN gp_boundaries b ON b.source_id = m.source_id AND b.part = m.part
    GROUP BY m.attempt, m.source_id, m.part, m.rank, m.source
),
uneven AS (SELECT attempt, max(cuts) AS most FROM counted GROUP BY attempt HAVING min(cuts) <> max(cuts))
SELECT c.attempt, c.source_id, c.part, c.cuts = u.most AS full,
    row_number() OVER (PARTITION BY c.attempt ORDER BY c.cuts DESC, c.rank, c.source) = 1 AS leads
FROM counted c JOIN uneven u USING (attempt)
