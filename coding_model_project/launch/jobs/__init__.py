"""Recipes as jobs: on GPUs of this machine, on a Ray cluster, under Slurm, on SageMaker.

base.py      a job, its state, and the protocol of a back end
source.py    the working tree as a package, and what of it is not committed
job_log.py   jobs.jsonl, from which every command but `submit` learns what there is, and its table
command.py   what runs on the other machine: the recipe, alone or beside the evaluation of its checkpoints
beside.py    both, in the job
control.py   submit, stop and follow, the same for every back end
fetch.py     a run's folder from where the job wrote it
names.py     names that every back end takes
image.py     the container image of SageMaker's jobs
local.py, ray_rest.py, slurm.py, sagemaker.py   the back ends; backends.py knows them by name
"""
