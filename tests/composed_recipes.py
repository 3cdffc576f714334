"""Composes the recipes when it is imported: a process forked from this one has nothing left to merge."""

import tests.composed_once  # noqa: F401 - keeps what is merged
from coding_model_project.launch.compose import compose_recipe

for recipe in ("baseline", "sft", "dpo", "grpo"):
    compose_recipe(recipe, ["hardware=cpu"])
