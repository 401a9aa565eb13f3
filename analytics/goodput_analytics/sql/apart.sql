-- Purpose: the windows whose lateness is not that of the whole step: declared spans touch them, or a rank went on after
--          its attempt's end.
-- Inputs:  gp_touched_windows, gp_windows, gp_limits
-- Grain:   one row per (attempt, life, step).
CREATE OR REPLACE TEMP TABLE gp_apart AS
SELECT attempt, life, step FROM gp_touched_windows
UNION SELECT w.attempt, w.life, w.step FROM gp_windows w JOIN gp_limits l ON l.attempt = w.attempt AND l.late
