"""verl's trainers, started, logged and checkpointed."""
