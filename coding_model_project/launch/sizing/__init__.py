"""Estimates of what a configuration needs of a machine, made without torch.

shapes.py     a model's shape: parameters, bytes per token
machine.py    this machine, or one that is described
training.py   memory of a GPU while it trains
rollout.py    memory of a GPU while vLLM generates, and how many sequences fit
host.py       a node's own memory, and checkpoints on disk
"""
