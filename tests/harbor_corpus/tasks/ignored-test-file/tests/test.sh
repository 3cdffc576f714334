#!/bin/bash
[ -e /tests/secret ] && echo 0 > /logs/verifier/reward.txt || echo 1 > /logs/verifier/reward.txt
