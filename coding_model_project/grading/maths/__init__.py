"""Maths problems: extraction of a completion's final answer, and its comparison with the problem's.

grader.py judges; equal_answers.py is the program that it runs in a sandbox.
"""
