"""One schema for the configuration keys of all rooms, and configurations as typed objects."""
