"""Plain queries: rows that bypass Spark's JVM (ADR 0074)."""
