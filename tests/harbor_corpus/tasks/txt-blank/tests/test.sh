#!/bin/bash
echo > /logs/verifier/reward.txt
