"""tinyshell: small Harbor tasks of one or two shell commands, made by a deterministic generator."""

from coding_model_project.data.tinyshell.generator import VERSION, Draw, ShellTask, generate
from coding_model_project.data.tinyshell.traces import HabitCorpus, trace

__all__ = ["VERSION", "Draw", "HabitCorpus", "ShellTask", "generate", "trace"]
