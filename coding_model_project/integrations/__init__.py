"""Adapters for other trainers and evaluation tools, one module per library.

A module imports its library, if at all, only when it is used.

    trl        a reward function for TRL's trainers
    verl       a reward function for verl recipes of your own
    inspect    a sandbox, a scorer and a task for Inspect AI
"""
