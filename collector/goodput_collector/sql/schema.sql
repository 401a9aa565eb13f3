-- The landed events: one table per kind of the event contract, version 1.
-- Grain: one row per event, unique by (source_id, seq) over all ev_ tables together.
-- Columns: times and durations are integer nanoseconds (_ns), clocks as the source told them (not aligned);
--   run_id and source_id are dictionary keys; a field that the event left out is NULL (defaults are the reader's).
CREATE TABLE IF NOT EXISTS runs (run_id INTEGER PRIMARY KEY, run VARCHAR NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS sources (source_id INTEGER PRIMARY KEY, source VARCHAR NOT NULL UNIQUE);

CREATE TABLE IF NOT EXISTS ev_start (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    v INTEGER, job VARCHAR, restart_count BIGINT, rank BIGINT, local_rank BIGINT, world_size BIGINT,
    node VARCHAR, pid BIGINT, devices BIGINT, device_kind VARCHAR, process_start_ns BIGINT,
    grp VARCHAR,                       -- the field `group`
    labels VARCHAR, meta VARCHAR,      -- JSON text
    attempt_token VARCHAR);
CREATE TABLE IF NOT EXISTS ev_joined (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    attempt_token VARCHAR, rank BIGINT, world_size BIGINT);
CREATE TABLE IF NOT EXISTS ev_resume (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    step BIGINT);                      -- NULL: nothing was loaded
CREATE TABLE IF NOT EXISTS ev_step (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    step BIGINT NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL,
    data_ns BIGINT, busy_ns BIGINT, "count" BIGINT, applied BOOLEAN, loss DOUBLE, lr DOUBLE,
    -- The step event before it in its source (by seq): its number and its end; NULL for the first.
    before_step BIGINT, before_end_ns BIGINT);
CREATE TABLE IF NOT EXISTS ev_begin (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    span VARCHAR NOT NULL, id VARCHAR, step BIGINT, category VARCHAR, async BOOLEAN);
CREATE TABLE IF NOT EXISTS ev_end (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    span VARCHAR NOT NULL, id VARCHAR, step BIGINT, ok BOOLEAN);
CREATE TABLE IF NOT EXISTS ev_durable (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    step BIGINT NOT NULL, ok BOOLEAN);
CREATE TABLE IF NOT EXISTS ev_progress (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS ev_heartbeat (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    of_source VARCHAR,                 -- the field `of`: the rank's source; NULL when told by the rank's own
    step BIGINT, phase VARCHAR, phase_since_ns BIGINT);
CREATE TABLE IF NOT EXISTS ev_stop (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    reason VARCHAR NOT NULL, detail VARCHAR);
CREATE TABLE IF NOT EXISTS ev_exit_observed (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    of_source VARCHAR NOT NULL, exit_code BIGINT, signal BIGINT, oom BOOLEAN);
CREATE TABLE IF NOT EXISTS ev_allocation (
    run_id INTEGER,                    -- NULL: the run is found through the job
    source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    job VARCHAR NOT NULL, gpus BIGINT NOT NULL, submit_ns BIGINT, start_ns BIGINT NOT NULL, end_ns BIGINT,
    end_reason VARCHAR);
CREATE TABLE IF NOT EXISTS ev_dropped (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, ts_ns BIGINT NOT NULL,
    reason VARCHAR, "count" BIGINT);

-- One row per file or stream that was taken, up to offset_bytes.
CREATE TABLE IF NOT EXISTS streams (
    stream_id INTEGER PRIMARY KEY, name VARCHAR NOT NULL UNIQUE, offset_bytes BIGINT NOT NULL,
    fingerprint VARCHAR,               -- tells the same file, grown, from another one under its name
    carry_run VARCHAR, carry_source VARCHAR);   -- what carries over to the line at offset_bytes
-- Which runs a stream brought events of (a rejected line often cannot say its run).
CREATE TABLE IF NOT EXISTS stream_runs (stream_id INTEGER NOT NULL, run_id INTEGER NOT NULL);
-- Grain: one row per line, or piece of a glued line, that could not be taken; the first ones of each stream and reason.
CREATE TABLE IF NOT EXISTS rejected (
    stream_id INTEGER NOT NULL, offset_bytes BIGINT NOT NULL, reason VARCHAR NOT NULL,
    head BLOB NOT NULL,                -- its first bytes, at most 256
    pending BOOLEAN NOT NULL);         -- the unfinished last line of its stream, replaced when the stream grows
-- Grain: stream and reason. How many lines more were rejected than are kept in `rejected`.
CREATE TABLE IF NOT EXISTS rejected_more (stream_id INTEGER NOT NULL, reason VARCHAR NOT NULL, lines BIGINT NOT NULL);
-- Grain: run. Events that came again: the same (duplicates), or with another content (conflicts).
CREATE TABLE IF NOT EXISTS delivery (run_id INTEGER, duplicates BIGINT NOT NULL, conflicts BIGINT NOT NULL);
-- Grain: event that came with several contents, and content other than the one that was kept: as its canonical line.
CREATE TABLE IF NOT EXISTS displaced (source_id INTEGER NOT NULL, seq BIGINT NOT NULL, line VARCHAR NOT NULL);
-- Grain: source. The range of the sequence numbers that landed: what lies outside it cannot have come before.
CREATE TABLE IF NOT EXISTS source_ranges (source_id INTEGER NOT NULL, min_seq BIGINT NOT NULL, max_seq BIGINT NOT NULL);
-- Grain: run and source. The last of its steps that landed: what comes next is linked to it.
CREATE TABLE IF NOT EXISTS step_tips (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, seq BIGINT NOT NULL, step BIGINT NOT NULL, end_ns BIGINT NOT NULL);
-- Grain: run, source and block of 1,000 step numbers. The landed steps, reduced, so that nobody reads them all for this.
CREATE TABLE IF NOT EXISTS step_blocks (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, block BIGINT NOT NULL,
    steps BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL, top_step BIGINT NOT NULL,
    first_start_ns BIGINT NOT NULL, first_end_ns BIGINT NOT NULL, last_end_ns BIGINT NOT NULL,
    last_told_ns BIGINT NOT NULL,
    backwards BIGINT NOT NULL,         -- how many end before they start; elsewhere they end when they start
    back BOOLEAN NOT NULL, again BOOLEAN NOT NULL);   -- a number falls behind the one before it, or repeats it
-- Grain: correction. What people corrected, in order of `place`; what was recorded stays as it is.
CREATE TABLE IF NOT EXISTS corrections (
    id VARCHAR PRIMARY KEY, place BIGINT NOT NULL, at_ns BIGINT NOT NULL, who VARCHAR NOT NULL,
    act VARCHAR NOT NULL,              -- rename, merge, delete or incident
    run VARCHAR NOT NULL,              -- the run, by its recorded name; said  as it was called then
    said VARCHAR NOT NULL,
    target VARCHAR,                    -- rename: the new name; merge: the other run, by its recorded name
    source VARCHAR, part BIGINT, life BIGINT, inside BOOLEAN,   -- incident: a process of its attempt, and which of its ends
    cause VARCHAR, note VARCHAR,
    undone_ns BIGINT, undone_by VARCHAR);
-- Grain: recorded run that is shown as another, under another name, or not at all: what follows from `corrections`.
CREATE TABLE IF NOT EXISTS shown (
    run_id INTEGER NOT NULL, root_id INTEGER NOT NULL, run VARCHAR NOT NULL, hidden BOOLEAN NOT NULL);
-- Grain: recorded run. root_id: the run that it is a part of, mostly itself; run: what that one is called.
CREATE VIEW IF NOT EXISTS shown_runs AS
SELECT r.run_id, coalesce(s.root_id, r.run_id) AS root_id, coalesce(s.run, r.run) AS run, coalesce(s.hidden, false) AS hidden
FROM runs r LEFT JOIN shown s ON s.run_id = r.run_id;

-- Grain: run that somebody asked for a checkpoint, until until_ns; step: after this one, NULL for at once.
CREATE TABLE IF NOT EXISTS checkpoint_requests (run VARCHAR NOT NULL, id VARCHAR NOT NULL, step BIGINT, until_ns BIGINT NOT NULL);

-- What is kept of steps whose rows of ranks have gone: see goodput_analytics/retention.py.
-- Grain: recorded run. Events told before before_ns come too late: they are counted, and not taken.
CREATE TABLE IF NOT EXISTS raw_horizons (run_id INTEGER NOT NULL, before_ns BIGINT NOT NULL);
-- Grain: process. Its steps numbered below `below` are closed; of their rows few are left.
CREATE TABLE IF NOT EXISTS closed_steps (run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, below BIGINT NOT NULL);
-- Grain: process. Its steps numbered below `below` are kept reduced (kept_..., under the key anchor_id), though all their
--   rows are there: what these were when they were reduced, so that it is seen when another came. See
--   goodput_analytics/early.py.
CREATE TABLE IF NOT EXISTS closed_early (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, anchor_id INTEGER NOT NULL, below BIGINT NOT NULL,
    steps BIGINT NOT NULL, last_seq BIGINT,    -- the steps numbered below it
    horizon_ns BIGINT NOT NULL, marks BIGINT NOT NULL,   -- other events up to that moment, own clock
    kept BIGINT NOT NULL);             -- rows of kept_steps
-- Grain: process of a rank that was named as slow. Of its steps numbered below `below` that are kept reduced though their
--   rows are there, kept_measures holds what it did of each on its own.
CREATE TABLE IF NOT EXISTS measured_early (run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, below BIGINT NOT NULL);
-- Grain: such a process and step. As gp_named_measures.
CREATE TABLE IF NOT EXISTS kept_measures (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, step BIGINT NOT NULL, gap_ns BIGINT, busy_ns BIGINT);
-- Grain: process and closed block of 1,000 step numbers. How far its clock was ahead.
CREATE TABLE IF NOT EXISTS kept_clocks (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, block BIGINT NOT NULL, offset_ns BIGINT NOT NULL);
-- Grain: closed step of an attempt (source_id: one of its processes). As gp_windows, gp_lateness (late_gap_ns to
--   half_late_ns) and gp_lateness_grouped (own_...; NULL where ranks told no groups), on aligned clocks.
CREATE TABLE IF NOT EXISTS kept_steps (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, step BIGINT NOT NULL,
    first_start_ns BIGINT NOT NULL, last_end_ns BIGINT NOT NULL, first_end_ns BIGINT NOT NULL, told_c BIGINT NOT NULL,
    data_ns BIGINT, ranks INTEGER NOT NULL, busy_ranks INTEGER NOT NULL, applied BOOLEAN NOT NULL,
    gap_ns BIGINT, busy_key BIGINT, busy_low BIGINT[],
    late_gap_ns BIGINT, late_ranks BIGINT, excess_ns BIGINT, latest_rank BIGINT, typical_late_ns BIGINT, half_late_ns BIGINT,
    own_late_ranks BIGINT, own_excess_ns BIGINT, own_latest_rank BIGINT, own_typical_late_ns BIGINT);
-- Grain: closed step of an attempt and group of ranks. The median rank's lateness in the group.
CREATE TABLE IF NOT EXISTS kept_groups (
    run_id INTEGER NOT NULL, source_id INTEGER NOT NULL, step BIGINT NOT NULL, grp VARCHAR, typical_late_ns BIGINT);
