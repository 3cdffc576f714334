"""What verl's main_ppo does with each key of a command, without importing verl."""
