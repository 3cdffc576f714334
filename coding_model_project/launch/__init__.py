"""Code that all recipes share, without verl.

recipe.py        what a recipe's `__main__` calls; --help answers without more imports
command_line.py  a recipe's arguments, and sweeps
compose.py       the recipe's configuration; errors that name the key
checks/          refusals before verl is imported
device.py        the hardware profile and the environment of its processes
run.py           a run: checks, folder, attempts, exit codes
sizing.py        memory on CPUs, by the model's shape
steps.py, pipeline/   commands as steps, and the five phases made of them
jobs/            recipes on other machines
verl_keys/       what verl does with each key of a command
"""
