#!/bin/bash
# Judges the submission, evaluates it and the base model, and writes the reward last.
cd /
export PYTHONPATH="/tests/package${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false LC_ALL=C.UTF-8
exec python3 -s -P -m coding_model_project.harbor.posttrain.verify /tests /logs/verifier
