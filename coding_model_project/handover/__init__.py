"""A checkpoint as a model for others: exported whole, with a card of what was measured."""
