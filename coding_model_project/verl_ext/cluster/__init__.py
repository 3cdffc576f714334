"""Ray workers that start in no time."""
