-- How far the stream archive has landed. Grain: one row.
CREATE TABLE IF NOT EXISTS archive_position (
    archive_id VARCHAR NOT NULL,           -- the archive that this database was made from
    file BIGINT NOT NULL, byte BIGINT NOT NULL);   -- all groups before this place have landed
