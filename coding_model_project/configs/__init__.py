"""The keys of all rooms as one schema, and configurations as typed objects."""
