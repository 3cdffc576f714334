"""Check that a starting model exists on the hub, before Ray starts and workers retry for minutes."""

from __future__ import annotations

import functools

from coding_model_project.data.loaders.remote import network_errors
from coding_model_project.errors import ConfigError
from coding_model_project.launch.sizing.shapes import cached_config

HUB_TIMEOUT_S = 10.0


def check_hub_model(key: str, name: str) -> None:
    """Check that a model is in the hub's cache or on the hub, which is asked once.

    Raises:
        ConfigError: the hub has no such model, refuses this user, or cannot be reached.
    """
    if cached_config(name) is not None:
        return
    if why := _why_not(name):
        raise ConfigError(f"{key}={name}: no such folder here, and {why}")


@functools.cache  # a recipe checks twice
def _why_not(name: str) -> str:
    """Return why the hub does not give a model to this user; empty if it may."""
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    unreachable = "; download the model first, or pass its folder"
    if constants.HF_HUB_OFFLINE:
        return f"the hub cannot be reached (HF_HUB_OFFLINE is set){unreachable}"
    try:
        url = hf_hub_url(name, "config.json", endpoint=constants.ENDPOINT)
        get_hf_file_metadata(url, timeout=HUB_TIMEOUT_S)
    except errors.GatedRepoError:
        page = f"{constants.ENDPOINT}/{name}"
        return f"the hub's model is gated; accept its terms at {page}, then set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        return (
            "no such model on the hub; check the name, pass a model's folder, or set HF_TOKEN if the "
            "model is private"
        )
    except errors.HFValidationError:
        return "not a name on the hub; check the name, or pass a model's folder"
    except errors.HfHubHTTPError:
        return ""  # a model without config.json, or a busy hub, which a download asks again
    except network_errors() as error:
        line = str(error).splitlines()[0] if str(error) else ""
        reason = f"{type(error).__name__} {line}".rstrip()
        return f"the hub cannot be reached ({reason}){unreachable}"
    return ""
