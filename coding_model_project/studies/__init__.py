"""Studies: arms, seeds, metric and stop rule written down first, then run, then a page made of what came.

definition.py  the file that is committed before the first run
members.py     trains and evaluates what is missing, member by member
study_page.py  the study's page in experiment_design/, made anew from the folders
conclusions.py what follows, no stronger than intervals and tests
curves.py      an arm's mean over its seeds; curves in few points
"""
