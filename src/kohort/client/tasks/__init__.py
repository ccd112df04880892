"""Tasks with local state: a store a task, a changelog topic, standbys."""
