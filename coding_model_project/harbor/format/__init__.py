"""Harbor's files as values, read and written exactly. Nothing here runs anything."""
