"""A model at work on Harbor tasks, as a job that Harbor can read."""
