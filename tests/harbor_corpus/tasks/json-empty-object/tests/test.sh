#!/bin/bash
printf '{}' > /logs/verifier/reward.json
