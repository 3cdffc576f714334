"""Recipes as jobs: on GPUs of this machine, on a Ray cluster, under Slurm, on SageMaker.

base.py      a job, its state and name; the protocol of a back end, and the options of each
source.py    the working tree as a package, with a patch of its uncommitted changes
control.py   the job log; submit, stop, follow and fetch, the same for every back end
beside.py    the program that trains, and evaluates the checkpoints, in one job
script_jobs.py (with job.sh), ray_jobs.py, sagemaker.py   the back ends: this machine and Slurm, Ray,
             SageMaker
"""
