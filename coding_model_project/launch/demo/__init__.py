"""From nothing to a measured gain."""
