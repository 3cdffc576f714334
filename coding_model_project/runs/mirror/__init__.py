"""Copies of run folders at URLs, to follow or resume a run from another machine.

`mirror.py` writes the copy during a run, `replica.py` reads it, and `restoring.py` restores a run's
folder from it.
"""
