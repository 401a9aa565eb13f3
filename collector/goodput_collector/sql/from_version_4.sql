-- What ranks that are named as slow did on their own is kept beside complete blocks of steps.
SELECT 1;
