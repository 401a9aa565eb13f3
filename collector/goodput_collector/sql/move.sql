-- Sets how far each stream of a batch was taken.
-- In: goodput_moved (stream_id, name, offset_bytes, fingerprint, carry_run, carry_source, new, begins). Out: streams, rejected.
INSERT INTO streams
SELECT stream_id, name, offset_bytes, fingerprint, carry_run, carry_source FROM goodput_moved WHERE new;
UPDATE streams SET offset_bytes = m.offset_bytes, fingerprint = m.fingerprint, carry_run = m.carry_run,
    carry_source = m.carry_source
FROM goodput_moved m WHERE m.stream_id = streams.stream_id AND NOT m.new;
-- An unfinished line has gone on; but if another file has its stream's name now, it never will.
UPDATE rejected SET pending = false
FROM goodput_moved m WHERE m.stream_id = rejected.stream_id AND rejected.pending AND m.begins;
DELETE FROM rejected USING goodput_moved m WHERE m.stream_id = rejected.stream_id AND rejected.pending AND NOT m.begins;
