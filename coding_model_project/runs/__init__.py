"""A run is a folder: what was asked, on what, what came of it, how to go on. See docs/read-a-run.md."""
