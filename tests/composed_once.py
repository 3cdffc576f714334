"""Makes a process parse and merge the same configuration files once.

Composing a recipe, Hydra reads and merges forty files; that is most of its time, and tests compose
hundreds of times from files that none of them changes. Merged configurations are kept pickled, so each
caller gets a copy of its own. A file is found by its content and a merge by the names of its files.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, OmegaConf

_load = OmegaConf.load
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_loaded: dict[str, bytes] = {}
_merged: dict[str, bytes] = {}


def load(file_: Any) -> Any:
    """Load a file like `OmegaConf.load`, but parse it once."""
    if isinstance(file_, (str, os.PathLike)):
        return _load(file_)
    text = file_.read()
    if text not in _loaded:
        file_.seek(0)
        _loaded[text] = pickle.dumps(_load(file_))
    return pickle.loads(_loaded[text])


def merge(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """Merge the files of a defaults list like Hydra, but only once."""
    of = [(one.config_path, one.package, one.parent, one.is_self, one.primary) for one in defaults]
    key = repr((of, [source.path for source in repo.get_sources()]))
    if key not in _merged:
        _merged[key] = pickle.dumps(_merge(self, defaults=defaults, repo=repo))
    return pickle.loads(_merged[key])


OmegaConf.load = staticmethod(load)
ConfigLoaderImpl._compose_config_from_defaults_list = merge
