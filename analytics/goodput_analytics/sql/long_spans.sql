-- Purpose: completed spans far beyond their like.
-- Inputs:  gp_spans
-- Grain:   one row per span name with such a span.
-- Columns: longest_ns, typical_ns; spans  how many were too long
CREATE OR REPLACE TEMP TABLE gp_long_spans AS
WITH lengths AS (
    SELECT name, end_ns - begin_ns AS length_ns FROM gp_spans WHERE closed
),
typical AS (
    SELECT name, middle_ns(quantile_disc(length_ns, [0.5, 0.5000000001])) AS typical_ns, count(*) AS spans
    FROM lengths GROUP BY name
)
SELECT l.name, max(l.length_ns) AS longest_ns, any_value(t.typical_ns) AS typical_ns, count(*) AS spans
FROM lengths l JOIN typical t USING (name)
WHERE t.spans >= 5 AND l.length_ns > greatest(3 * t.typical_ns, 60000000000)
GROUP BY l.name
