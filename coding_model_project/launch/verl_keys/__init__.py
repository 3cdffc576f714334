"""The effect of each key of a main_ppo command, without importing verl.

tree     verl's own configuration, composed by Hydra
table    effects of an override; keys that nobody reads, and their successors; faults of values
effects  all overrides of a command
"""
