"""Environments of Harbor tasks: the protocol `base.Environment`, and its implementations by name."""
