"""Copies of run folders behind a URL, by which a run is followed from elsewhere and goes on elsewhere.

`mirror.py` writes one while a run works, `replica.py` reads one, `restoring.py` makes a run's folder of it.
"""
