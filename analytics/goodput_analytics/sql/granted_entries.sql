-- Purpose: the part of the ledger that allocations tell. (Most runs have none: not to plan it saves a tenth of a second.)
-- Inputs:  gp_entries, gp_attempts, gp_allocations
-- Grain:   as gp_ledger.
-- Algorithm: an allocation is the truth for when and how many GPUs were held: entries are cut to it, an attempt takes at
--            most what it drives, the rest is idle.
CREATE OR REPLACE TEMP TABLE gp_granted_entries AS
WITH owned AS (
    SELECT attempt, job, gpus FROM gp_attempts WHERE job IN (SELECT job FROM gp_allocations)
),
cut AS (
    SELECT e.* EXCLUDE (held_by, start_ns, end_ns), greatest(e.start_ns, g.start_ns) AS start_ns,
        least(e.end_ns, g.end_ns) AS end_ns, least(o.gpus, g.gpus) AS gpus
    FROM gp_entries e
    JOIN owned o ON o.attempt = e.attempt
    JOIN gp_allocations g ON g.job = o.job AND g.start_ns < e.end_ns AND g.end_ns > e.start_ns
    WHERE NOT (e.place = 'after' AND e.category = 'idle')
),
extents AS (
    SELECT o.job, e.attempt, min(e.start_ns) AS start_ns, max(e.end_ns) AS end_ns, any_value(o.gpus) AS gpus
    FROM gp_entries e JOIN owned o ON o.attempt = e.attempt
    WHERE NOT (e.place = 'after' AND e.category = 'idle')
    GROUP BY o.job, e.attempt
),
cuts AS (
    SELECT job, start_ns AS at_ns FROM gp_allocations UNION SELECT job, end_ns FROM gp_allocations
    UNION SELECT job, start_ns FROM extents UNION SELECT job, end_ns FROM extents
),
pieces AS (
    SELECT job, at_ns AS start_ns, lead(at_ns) OVER (PARTITION BY job ORDER BY at_ns) AS end_ns FROM cuts
),
spare AS (
    SELECT p.job, p.start_ns, p.end_ns, greatest(g.gpus - coalesce(x.gpus, 0), 0) AS gpus
    FROM pieces p
    JOIN gp_allocations g ON g.job = p.job AND g.start_ns <= p.start_ns AND g.end_ns >= p.end_ns
    LEFT JOIN extents x ON x.job = p.job AND x.start_ns <= p.start_ns AND x.end_ns >= p.end_ns
)
SELECT attempt::INTEGER AS attempt, step, category::gp_category AS category, phase, start_ns, end_ns, gpus,
    place::gp_place AS place, charged_attempt::INTEGER AS charged_attempt, charged_life::INTEGER AS charged_life, latest_rank
FROM cut WHERE gpus > 0
UNION ALL
SELECT NULL, NULL, 'idle', NULL, start_ns, end_ns, gpus, 'spare', NULL, NULL, NULL FROM spare WHERE gpus > 0
