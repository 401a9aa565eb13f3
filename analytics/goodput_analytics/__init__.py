"""The ledger of a training run: relations and numbers from a DuckDB connection handed in."""
