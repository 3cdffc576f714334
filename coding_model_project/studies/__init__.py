"""Studies: preregistered comparisons of training runs, with arms, seeds, a metric and a stop rule.

study.py       the definition, which is committed before the first run; trains and evaluates missing
               members, one by one
study_page.py  the study's page in experiment_design/, regenerated from the folders: conclusions that
               intervals and tests support, and means of an arm's curves over its seeds
"""
