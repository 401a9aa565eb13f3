-- What /metrics told last of the counters of each run: they go on from there, whatever late events revise.
-- Grain: one row per run (launches beside the first under their own names).
CREATE TABLE IF NOT EXISTS metric_marks (
    run VARCHAR PRIMARY KEY,
    marks VARCHAR NOT NULL);           -- JSON: the name of a counter and its value
