"""Runs verl without an accelerator: platform, process group, FSDP2 engine, vLLM rollout.

Loaded by verl through its `verl.plugins` entry point, in every process that imports verl. Inert
unless VERL_PLATFORM=cpu, which `launch.choose_platform` sets where there is no accelerator.
"""

import os

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from coding_model_project.verl_ext.cpu import platform

    platform.register()
    # What follows imports parts of verl that ask for the platform, so it must be registered first.
    from coding_model_project.verl_ext.cpu import engine, process_group, rollout

    process_group.register()
    engine.register()
    rollout.register()
