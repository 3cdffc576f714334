"""The effect of each key of a main_ppo command, without importing verl.

found    the effect of one override
tree     verl's own configuration, composed by Hydra
table    keys that nobody reads, and their successors
values   faults of values
effects  all overrides of a command
"""
