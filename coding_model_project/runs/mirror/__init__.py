"""Copies of run folders at URLs, to follow or resume a run from another machine.

`index.py` describes the copy, `mirror.py` writes it during a run, `reading.py` follows it, and
`mirroring.py` does both around a run: it restores the folder first.
"""
