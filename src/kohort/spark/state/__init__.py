"""State that follows its partition: files, local copies, functions, windows (ADR 0069)."""
