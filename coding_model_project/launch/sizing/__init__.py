"""Estimates of a configuration's memory and disk needs, without torch.

shapes.py     a model's shape: parameters, bytes per token
bucket.py     size of the bucket of a weight sync
plan.py       the values of a configuration that its memory depends on
machine.py    this machine, or a described one
training.py   memory of a GPU while it trains
rollout.py    memory of a GPU while vLLM generates, and how many sequences fit
host.py       memory of a training on CPUs, and checkpoints on disk
"""
