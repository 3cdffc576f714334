"""The pipeline's own keys, validated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError

PHASES = ("baseline", "sft", "dpo", "grpo", "repair")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the phases."""

    root: Path
    phases: tuple[str, ...]
    model: str
    data_dir: Path
    problems: Path
    """The file of the training problems."""
    common: tuple[str, ...]
    """Overrides for every recipe: hardware, and the user's overrides under `coding:`."""
    tree: Any
    """All keys, resolved."""

    @classmethod
    def of(cls, config: DictConfig, overrides: Sequence[str], hardware: str) -> Settings:
        """Read and check the settings.

        Args:
            overrides: from the command line.

        Raises:
            ConfigError: a phase is unknown, or the phases are not in order.
        """
        phases = tuple(config.phases)
        unknown = [phase for phase in phases if phase not in PHASES]
        if unknown:
            raise ConfigError(f"phases={unknown[0]}: choose from {', '.join(PHASES)}")
        if list(phases) != sorted(set(phases), key=PHASES.index) or "baseline" not in phases:
            raise ConfigError(
                f"phases=[{','.join(phases)}]: list each once, in this order, starting with baseline: "
                f"{', '.join(PHASES)}"
            )
        passed_on = [
            word
            for word in overrides
            if word.lstrip("+~").startswith("coding.")
            and not word.startswith(("coding.run_dir", "coding.data_dir"))
        ]
        data_dir = Path(config.coding.data_dir).absolute()
        return cls(
            root=Path(config.coding.run_dir),
            phases=phases,
            model=config.base_model,
            data_dir=data_dir,
            problems=Path(config.coding.problems[0]).absolute(),
            common=(f"hardware={hardware}", f"coding.data_dir={data_dir}", *passed_on),
            tree=OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        )
