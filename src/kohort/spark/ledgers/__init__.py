"""The exactly-once ledger of a table in SQLite or PostgreSQL, and the interface of all ledgers."""
