"""Requests of tasks that no environment of ours meets, and compose files of one service."""

import pytest

from coding_model_project.harbor.environment.base import ImageError
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.format.task_config import (
    EnvironmentConfig,
    NetworkMode,
    TaskOS,
    Tpu,
)
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("harbor")

SOURCES = sources(__file__)

ONE_SERVICE = SOURCES["one service"]


def of_compose(folder, text, **config):
    (folder / "Dockerfile").write_text("FROM debian\n")
    (folder / "docker-compose.yaml").write_text(text)
    return defined(folder, EnvironmentConfig(**config), {"SIZE": "2"})


def test_a_compose_file_of_main_alone_gives_variables_and_a_folder(tmp_path):
    made = of_compose(tmp_path, ONE_SERVICE)
    assert (made.env, made.workdir) == ({"COLOUR": "blue", "SIZE": "2"}, "/srv")
    assert of_compose(tmp_path, ONE_SERVICE, workdir="/own").workdir == "/own"
    added = "services: {main: {environment: [COLOUR=red]}}"  # Harbor's own `main` has the build
    assert of_compose(tmp_path, added).env == {"COLOUR": "red", "SIZE": "2"}


@pytest.mark.parametrize(("change", "says"), CASES["compose file"])
def test_what_a_compose_file_needs_besides_is_named(tmp_path, change, says):
    with pytest.raises(ImageError, match=says):
        of_compose(tmp_path, ONE_SERVICE.replace(*change))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"network_mode": NetworkMode.allowlist, "allowed_hosts": ("a.org",)}, "allowlist"),
        ({"tpu": Tpu(type="v5e", topology="2x4")}, "tpu"),
        ({"os": TaskOS.windows}, "os = 'windows'"),
    ],
)
def test_what_nothing_here_provides_is_one_line(tmp_path, config, says):
    with pytest.raises(ImageError, match=rf"environment\..*{says}.*harbor run -e docker"):
        defined(tmp_path, EnvironmentConfig(**config), {})
