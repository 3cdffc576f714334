"""The verifier of a post-training task.

verify.py         judges, evaluates, and writes the reward last
submission.py     the agent's folder, of which weights are taken and nothing else
lineage.py        are these weights the base model's, trained further
left_files.py     the text of everything that the agent left
contamination.py  does any of it hold a test problem
language_judge.py the same question to a language model, if one is configured
scoring.py        a model's score by our evaluation
forked_sandbox.py forked_runner.py   programs where the embedded sandbox cannot run
"""
