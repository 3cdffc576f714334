"""Samples of several answers: how an episode goes on, whoever generates its answers."""
