"""tinycode: a deterministic generator of thousands of small Python tasks, composed from parts."""

from coding_model_project.synthetic.tinycode.generator import VERSION, Task, TinyCode, generate
from coding_model_project.synthetic.tinycode.noise import NoiseConfig, NoisyPrograms, noisy_solution

__all__ = [
    "VERSION",
    "NoiseConfig",
    "NoisyPrograms",
    "Task",
    "TinyCode",
    "generate",
    "noisy_solution",
]
