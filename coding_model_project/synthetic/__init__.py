"""The embedded default: generated tasks, and a tiny model trained from scratch."""
