"""The demo: from an empty folder to a measured gain."""
