"""Takes events, keeps them exactly once and owns the DuckDB file."""
