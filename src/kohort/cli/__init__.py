"""Layer 8. Commands: a file or a folder for each noun."""
