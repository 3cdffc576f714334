"""verl agent loops that generate episodes."""
