"""How fast the record store is when it holds millions of records: `python -m benchmarks.db`."""
