"""What is trained on: rows for RL and SFT, preference pairs, repair traces, mixtures."""
