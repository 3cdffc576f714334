"""Copies of run folders behind URLs: a run is followed from elsewhere, and goes on elsewhere.

`mirror.py` writes one while a run works, `replica.py` reads it, and `restoring.py` makes a run's folder
of it.
"""
