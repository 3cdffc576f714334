"""Training data: rows for RL and SFT, preference pairs, repair traces, mixtures."""
