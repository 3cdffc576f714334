"""Makes a process find, parse and merge the same configuration files once.

Composing a recipe, Hydra finds, reads and merges forty files; that is most of its time, and tests compose
hundreds of times from files that none of them changes. Merged configurations are kept pickled, so each
caller gets a copy of its own. A file is found by its content, a list of files by the choices that lead to
it, and a merge by the names of its files.
"""

import os
import pickle
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, Overrides
from omegaconf import DictConfig, OmegaConf

_load = OmegaConf.load
_list = config_loader_impl.create_defaults_list
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_loaded: dict[str, bytes] = {}
_listed: dict[str, DefaultsList] = {}
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


def list_files(repo: Any, config_name: str, overrides_list: list[Any], **how: bool) -> DefaultsList:
    """List the files of a configuration like Hydra, but only once for the same choices of files."""
    values = Overrides(repo=repo, overrides_list=overrides_list).config_overrides
    choices = [one.input_line for one in overrides_list if not any(one is v for v in values)]
    key = repr((config_name, choices, how, [source.path for source in repo.get_sources()]))
    if key not in _listed:
        _listed[key] = _list(repo, config_name, overrides_list, **how)
    known = _listed[key]
    return DefaultsList(known.defaults, known.defaults_tree, values, known.overrides)


def merge(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """Merge the files of a defaults list like Hydra, but only once."""
    of = [(one.config_path, one.package, one.parent, one.is_self, one.primary) for one in defaults]
    key = repr((of, [source.path for source in repo.get_sources()]))
    if key not in _merged:
        _merged[key] = pickle.dumps(_merge(self, defaults=defaults, repo=repo))
    return pickle.loads(_merged[key])


OmegaConf.load = staticmethod(load)
config_loader_impl.create_defaults_list = list_files
ConfigLoaderImpl._compose_config_from_defaults_list = merge
