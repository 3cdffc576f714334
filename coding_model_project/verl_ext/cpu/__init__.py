"""verl without an accelerator: platform, process group, FSDP2 engine, vLLM rollout.

verl loads this through its `verl.plugins` entry point in every process that imports verl. It does nothing
unless VERL_PLATFORM=cpu, which `launch.device` sets on a machine without an accelerator.
"""

import os

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from coding_model_project.verl_ext.cpu import platform

    platform.register()
    # These modules import parts of verl that look up the platform, so it must be registered first.
    from coding_model_project.verl_ext.cpu import engine, process_group, rollout

    process_group.register()
    engine.register()
    rollout.register()
