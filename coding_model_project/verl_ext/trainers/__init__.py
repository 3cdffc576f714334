"""verl's trainers, with what this package adds to them.

grpo.py              runs PPO and GRPO from a composed configuration
coding_trainer.py    what is added to each of verl's PPO trainers
ppo_trainer.py       the trainers: synchronous, and two asynchronous ones
judged_trainer.py    what is added in somebody's own main_ppo
sampling.py          which rows are drawn, and which samples a step trains on
batches.py           a step's samples in TransferQueue
samples.py           their metrics, rows, tables and traces
guards.py            what ends a run
sft.py               runs SFT and DPO, in this process or under torchrun
last_answer.py       SFT's data set
dpo_pairs.py         DPO's data set, and its losses
dpo_trainer.py       DPO's trainer
verl_checkpoints.py  manifests, uploads, exports
loggers.py           metrics.jsonl and trackers, which survive a resume
"""
