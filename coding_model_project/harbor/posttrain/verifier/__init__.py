"""The verifier of a post-training task.

verify.py         judges, evaluates, and writes the reward last
submission.py     the agent's folder, of which only weights are used
lineage.py        checks that the weights are the base model's, trained further
left_files.py     the text of everything that the agent left
contamination.py  searches that text for test problems
language_judge.py asks a language model the same, if one is configured
scoring.py        a model's score by our evaluation
"""
