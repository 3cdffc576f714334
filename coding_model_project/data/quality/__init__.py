"""Checks of data sets: their gold solutions must pass, and known-bad programs must fail."""
