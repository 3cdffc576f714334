"""Episodes as verl's agent loops."""
