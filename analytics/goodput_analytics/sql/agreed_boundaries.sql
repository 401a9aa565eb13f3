-- Purpose: one set of lives for all ranks of an attempt, where they told different ones.
-- Inputs:  gp_boundaries, gp_uneven_lives, gp_members, gp_rank_steps, ev_resume; the connection's variable gp_run_id
-- Grain:   as gp_boundaries; a rank that tells nothing of a life has two that are the same.
-- Algorithm: ranks that tell as many rollbacks as any keep their own. The lowest of them cuts in the middle between the
--            ends of its steps on either side (or where it said that it resumed); a life of a rank that tells fewer
--            begins with its first step that ended after that, or where it said before that step, but after the
--            rollback was told, that it resumed.
CREATE OR REPLACE TEMP TABLE gp_boundaries AS
WITH cuts AS (
    SELECT b.attempt, b.seq AS cut, b.told_ns,
        coalesce(b.last_end_ns + (b.next_end_ns - b.last_end_ns) // 2, b.told_ns) AS cut_ns
    FROM gp_boundaries b JOIN gp_uneven_lives u USING (attempt, source_id, part) WHERE u.leads
),
stepped AS (
    SELECT u.attempt, u.source_id, u.part, c.cut, c.told_ns, c.cut_ns, any_value(m.from_seq) AS from_seq,
        any_value(m.to_seq) AS to_seq, max(r.seq) FILTER (r.end_ns < c.cut_ns) AS last_seq,
        min(r.seq) FILTER (r.end_ns >= c.cut_ns) AS next_seq
    FROM cuts c
    JOIN gp_uneven_lives u ON u.attempt = c.attempt AND NOT u.full
    JOIN gp_members m ON m.attempt = u.attempt AND m.source_id = u.source_id AND m.part = u.part
    LEFT JOIN gp_rank_steps r ON r.source_id = m.source_id AND r.seq BETWEEN m.from_seq AND m.to_seq
    GROUP BY u.attempt, u.source_id, u.part, c.cut, c.told_ns, c.cut_ns
),
others AS (
    SELECT s.attempt, s.source_id, s.part, s.cut, s.cut_ns, coalesce(min(e.seq), any_value(s.next_seq)) AS seq
    FROM stepped s LEFT JOIN ev_resume e ON e.run_id = getvariable('gp_run_id') AND e.source_id = s.source_id
        AND e.seq BETWEEN greatest(s.from_seq, s.last_seq + 1) AND least(s.to_seq, s.next_seq)
        AND e.ts_ns >= s.told_ns
    GROUP BY s.attempt, s.source_id, s.part, s.cut, s.cut_ns
)
SELECT * FROM gp_boundaries WHERE attempt NOT IN (SELECT attempt FROM gp_uneven_lives)
UNION ALL
SELECT b.* FROM gp_boundaries b JOIN gp_uneven_lives u USING (attempt, source_id, part) WHERE u.full
UNION ALL
SELECT attempt, source_id, part, seq, cut_ns, NULL, NULL FROM others WHERE seq IS NOT NULL
