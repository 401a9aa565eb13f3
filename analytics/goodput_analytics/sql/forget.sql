-- Purpose: gives back the room of what nobody asks any more: the windows as they were before they had parts.
-- Inputs:  gp_windows, gp_window_times, gp_lateness, gp_lateness_grouped
DROP TABLE gp_windows;
DROP TABLE gp_window_times;
DROP TABLE gp_lateness;
DROP TABLE gp_lateness_grouped
