"""Models for others: checkpoints exported with a card of measurements, and served."""
