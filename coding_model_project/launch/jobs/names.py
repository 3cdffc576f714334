"""Job names that are valid on every back end; random ones on request."""

from __future__ import annotations

import re
import secrets
import time

from coding_model_project.errors import ConfigError

_MAX_CHARACTERS = 63
_VALID = re.compile(r"[a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*")
"""SageMaker's rule, the strictest: Ray accepts any text as a submission id, Slurm any name."""


def check_name(name: str) -> None:
    """Refuse a name that some back end would reject.

    Raises:
        ConfigError: the name is not valid.
    """
    if len(name) > _MAX_CHARACTERS or not _VALID.fullmatch(name):
        raise ConfigError(
            f"--name={name}: expected at most {_MAX_CHARACTERS} letters, digits and dashes, with a "
            "letter or digit at both ends"
        )


def new_name(recipe: str, *, anonymous: bool) -> str:
    """Return a name made of the recipe and the time, or a random one."""
    if anonymous:
        return f"job-{secrets.token_hex(6)}"
    return f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
