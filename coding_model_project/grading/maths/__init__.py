"""Maths problems: the final answer of a completion, and its comparison with the problem's.

grader.py judges; equal_answers.py is the program that it runs in a sandbox.
"""
