-- Purpose: a lateness and who was so late in one number, whose maximum is the greatest lateness and of equals the lowest
--          rank.
-- Inputs:  nanoseconds, a rank
-- Columns: late_ns * 2^20 - rank, a BIGINT; NULL for no lateness. (A lateness counts up to 2^43 ns, two hours and a half:
--          of several ranks later than that in one step the lowest counts.)
CREATE OR REPLACE TEMP MACRO late_key(late_ns, rank) AS
    CASE WHEN late_ns > 8796093022207 THEN 8796093022207 ELSE late_ns END * 1048576 - rank
