-- Purpose: the median of integers, exact: of an even number the mean of the two middle values, rounded down.
-- Inputs:  the two middle values, as quantile_disc(x, [0.5, 0.5000000001]) gives them: the second fraction names the same
--          element for an odd number of values and the next one for an even number (up to a thousand million of them)
-- Columns: a BIGINT, NULL for no values
CREATE OR REPLACE TEMP MACRO middle_ns(pair) AS
    pair[1] + CASE WHEN pair[2] >= pair[1] THEN (pair[2] - pair[1]) // 2 ELSE 0 END
