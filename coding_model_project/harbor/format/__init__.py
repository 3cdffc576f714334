"""Harbor's files as values, read and written exactly. Runs nothing."""
