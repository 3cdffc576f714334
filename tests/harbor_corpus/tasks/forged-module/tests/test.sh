#!/bin/bash
cd /app && python3 -c 'import json; print(json.loads("0"))' > /logs/verifier/reward.txt
