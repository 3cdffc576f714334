#!/bin/bash
# Fine-tunes the base model on the training problems.
set -e
mkdir -p {{ workspace }}
cp -- "$(dirname -- "$0")/train.py" {{ workspace }}/train.py
cd {{ workspace }}
python3 train.py {{ base }} task_context/train.jsonl final_model {{ steps }}
