-- Purpose: where the GPU time of the last minutes, hours and days went.
-- Inputs:  ledger_intervals; $end_ns
-- Grain:   one row per (window, category) that has any.
-- Columns: win     5m, 1h, 6h, 1d or 3d, which ends at $end_ns
--          gpu_ns  exact: the parts of the ledger's intervals that lie in the window
CREATE OR REPLACE TEMP TABLE gp_metric_windows AS
WITH windows AS (
    SELECT name AS win, $end_ns::BIGINT - length_s * 1000000000 AS from_ns
    FROM (VALUES ('5m', 300::BIGINT), ('1h', 3600), ('6h', 21600), ('1d', 86400), ('3d', 259200)) AS v(name, length_s)
)
SELECT w.win, l.category,
    sum((least(l.end_ns, $end_ns::BIGINT) - greatest(l.start_ns, w.from_ns))::HUGEINT * l.gpus) AS gpu_ns
FROM ledger_intervals l JOIN windows w ON l.end_ns > w.from_ns AND l.start_ns < $end_ns::BIGINT
GROUP BY w.win, l.category
