"""verl's reward manager, and the judges its processes share."""
