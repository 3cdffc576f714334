"""Starting, logging and checkpointing of verl's trainers."""
