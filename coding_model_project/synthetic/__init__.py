"""The embedded default data: generated tasks, and a tiny model trained from scratch."""
