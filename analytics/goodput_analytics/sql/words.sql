-- Purpose: the words of the ledger's columns as numbers of one byte: it has some millions of rows.
-- Inputs:  none
CREATE TEMP TYPE IF NOT EXISTS gp_category AS ENUM (
    'productive', 'startup', 'checkpoint', 'rework', 'hang', 'straggler', 'data_wait', 'evaluation', 'unattributed',
    'idle');
CREATE TEMP TYPE IF NOT EXISTS gp_place AS ENUM (
    'before', 'steps', 'spans', 'rollback', 'tail', 'after', 'silence', 'spare')
