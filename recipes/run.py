"""What every training recipe's `__main__` does: help, composition, early checks, exit codes.

Heavy imports happen after the checks, so that a misspelt key or a missing file answers at once.
"""

from __future__ import annotations

import contextlib
import difflib
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.configs import schema
from coding_model_project.data import prepare
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.verl_ext import checks, processes
from coding_model_project.verl_ext.platform import default_hardware, log_into, prepare_environment

Train = Callable[[DictConfig], None]
INTERRUPTED = 130


def run_recipe(name: str, doc: str, train: Train, argv: list[str] | None = None) -> None:
    """Run recipe `name` as a program and exit with the project's exit codes.

    Args:
        name: folder under `recipes/`; its `config/<name>.yaml` is the primary configuration.
        doc: the page that --help prints.
        train: does the work, given the composed configuration.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and argv[0] in ("-h", "--help"):
        print(doc.strip())
        raise SystemExit(0)
    debug = "--debug" in argv
    argv = [argument for argument in argv if argument != "--debug"]
    schema.register()
    overrides = [*_search_path(), *_hardware(argv)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clusters send it; end like Ctrl-C

    def task(config: DictConfig) -> None:
        with _one_line_errors(debug):  # inside Hydra, which would print errors its own way
            train(config)

    with _one_line_errors(debug):
        if not any(argument.startswith("-") for argument in argv):  # not a sweep, not --cfg
            compose_recipe(name, [*argv, *overrides])
    sys.argv = [f"recipes.{name}", *argv, *overrides]
    hydra.main(version_base=None, config_path=str(_config_dir(name)), config_name=name)(task)()


@contextlib.contextmanager
def _one_line_errors(debug: bool) -> Iterator[None]:
    """Turn our errors into one line and an exit code; leave them whole with --debug."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except CodingModelError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _search_path() -> list[str]:
    """verl's own configuration tree, found without importing verl (which takes seconds)."""
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("error: verl is not installed: run `make setup`")
    tree = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    return [f"hydra.searchpath=[file://{tree},pkg://coding_model_project.configs]"]


def _hardware(argv: list[str]) -> list[str]:
    if any(argument.startswith("hardware=") for argument in argv):
        return []
    chosen = default_hardware()
    why = "no accelerator found" if chosen == "cpu" else "accelerator found"
    print(f"hardware={chosen} ({why}; choose another with hardware=cpu|gpu_1x|gpu_8x)")
    return [f"hardware={chosen}"]


def compose_recipe(name: str, overrides: list[str]) -> DictConfig:
    """A recipe's configuration, composed without importing verl.

    Raises:
        ConfigError: names the key that is wrong and the way out, in one line.
    """
    schema.register()
    overrides = [*overrides, *(_search_path() if not _searches(overrides) else [])]
    try:
        with initialize_config_dir(config_dir=str(_config_dir(name)), version_base=None):
            return compose(config_name=name, overrides=overrides)
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__ or error
        key = getattr(cause, "full_key", None)
        text = " ".join(str(cause).split("full_key")[0].split("Config search path")[0].split())
        raise ConfigError(
            f"{key + ': ' if key else ''}{text}{_suggestion(name, overrides)}"
        ) from error


def _config_dir(name: str) -> Path:
    return Path(__file__).parent / name / "config"


def _searches(overrides: list[str]) -> bool:
    return any(override.startswith("hydra.searchpath=") for override in overrides)


def _suggestion(name: str, overrides: list[str]) -> str:
    """The known key closest to the first unknown one among the overrides."""
    with initialize_config_dir(config_dir=str(_config_dir(name)), version_base=None):
        own = [override for override in overrides if override.startswith("hydra.searchpath=")]
        known = _keys(compose(config_name=name, overrides=own))
    for override in overrides:
        key = override.lstrip("+~").split("=")[0]
        if key not in known and not key.startswith(("hydra", "hardware")):
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            near = f"; did you mean {close[0]}?" if close else ""
            return f" ({key}{near or ';'} see all keys with --cfg job)"
    return ""


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not OmegaConf.is_dict(node):
        return [prefix.rstrip(".")]
    own = [prefix.rstrip(".")] if prefix else []
    return own + [
        key
        for child in node
        for key in _keys(
            None
            if OmegaConf.is_missing(node, child) or OmegaConf.is_interpolation(node, child)
            else node[child],
            f"{prefix}{child}.",
        )
    ]


def ready(config: DictConfig, model_key: str) -> None:
    """Everything before verl is imported: checks, missing data and model, environment, run folder.

    Args:
        model_key: verl's key of the starting model, which differs between its trainers.
    """
    checks.refuse_legacy_keys(config)
    checks.check_memory(config.coding.min_memory_gb)
    _make_absolute(config)
    prepare.prepare(config.coding, OmegaConf.select(config, model_key), say=print)
    checks.check(config, model_key)

    run_dir = Path(config.coding.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, run_dir / "config.yaml", resolve=True)
    prepare_environment(config.trainer.device)
    log_into(run_dir)
    processes.start_sentinel()


def _make_absolute(config: DictConfig) -> None:
    """Ray's workers run elsewhere: the paths of `coding:`, which others refer to, become absolute."""
    for key in ("run_dir", "data_dir"):
        config.coding[key] = str(Path(config.coding[key]).expanduser().absolute())
