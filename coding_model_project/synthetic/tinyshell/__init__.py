"""tinyshell: a deterministic generator of small Harbor tasks of one or two shell commands."""

from coding_model_project.synthetic.tinyshell.shell_files import HabitCorpus, trace
from coding_model_project.synthetic.tinyshell.shell_generator import (
    VERSION,
    Draw,
    ShellTask,
    generate,
)

__all__ = ["VERSION", "Draw", "HabitCorpus", "ShellTask", "generate", "trace"]
