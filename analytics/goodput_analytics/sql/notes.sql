-- Purpose: what people said of the run's incidents.
-- Inputs:  corrections, sources, gp_members, gp_incidents
-- Grain:   one row per incident that somebody said something of.
-- Columns: attempt, life, inside, abort_ns, cause  the incident, as recorded
--          said_cause  planned, hardware, software or user; NULL where only a note was left
--          note; who, at_ns  who said so and when; id  of the correction
-- Algorithm: what was said last counts. An incident is found again by a process of its attempt.
CREATE OR REPLACE TEMP TABLE gp_notes AS
WITH last AS (
    SELECT * FROM corrections WHERE act = 'incident' AND undone_ns IS NULL
    QUALIFY row_number() OVER (PARTITION BY source, part, life, inside ORDER BY place DESC) = 1
)
SELECT i.attempt, i.life, i.inside, i.abort_ns, i.cause, c.cause AS said_cause, c.note, c.who, c.at_ns, c.id
FROM last c
JOIN sources s ON s.source = c.source
JOIN gp_members m ON m.source_id = s.source_id AND m.part = c.part
JOIN gp_incidents i ON i.attempt = m.attempt AND i.life = c.life AND i.inside = c.inside
QUALIFY row_number() OVER (PARTITION BY i.attempt, i.life, i.inside ORDER BY c.place DESC) = 1
