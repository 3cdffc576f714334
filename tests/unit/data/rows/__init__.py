"""Hand-written rows in the exact schema of each published data set."""
