"""What the embedded default is made of: generated tasks, and a tiny model trained from scratch."""
