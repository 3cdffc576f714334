"""Recipes as jobs: on GPUs of this machine, on a Ray cluster, under Slurm, on SageMaker.

base.py      a job, its state and name, and the protocol of a back end
source.py    the working tree as a package, with a patch of its uncommitted changes
job_log.py   job.json, the record of each job that all commands but `submit` read, and their table
command.py   the command of a job: the recipe, alone or beside the evaluation of its checkpoints; job.sh,
             its script on this machine and under Slurm
beside.py    the program that runs both in one job
control.py   submit, stop, follow and fetch, the same for every back end
local.py, ray_jobs.py, slurm.py, sagemaker.py   the back ends; backends.py
             has their options, and maps names to them
"""
