"""Images of rooms, and compose files of one service: what is followed, and what is refused by name."""

from pathlib import Path

import pytest

from coding_model_project.harbor.environment.base import ImageError, NeedsContainer
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.format.task_config import (
    EnvironmentConfig,
    NetworkMode,
)
from coding_model_project.harbor.rooms.image import Execute, Image, Lay, read_image
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("harbor")

SOURCES = sources(__file__)

FOLLOWED = SOURCES["followed"]


def planned(folder: Path, text: str, **files: str) -> Image:
    folder.mkdir(exist_ok=True)
    for name, content in {
        "Dockerfile": text,
        "data.txt": "d",
        "folder/in.txt": "f",
        **files,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return read_image(folder)


def test_what_is_followed(tmp_path):
    made = planned(tmp_path, FOLLOWED)
    assert made.env == {"A": "1", "B": "two words"}
    assert (made.workdir, made.user) == ("/srv/1/sub", "agent")
    lays = [step for step in made.steps if isinstance(step, Lay)]
    assert {e[0] for step in lays for e in step.files.entries} == {
        "srv/1/sub/data.txt", "srv/1/sub/in.txt", "srv/1/sub/renamed.txt",
    }  # fmt: skip
    (ran,) = (step for step in made.steps if isinstance(step, Execute))
    assert ran.instruction.text.startswith("echo $A &&")
    assert ran.instruction.text.endswith("echo two > /opt/two 2> /dev/null")
    assert (ran.user, ran.cwd, ran.env) == (None, "/srv/1/sub", made.env)
    assert "stand in for python:3.12-slim" in "\n".join(made.notes)


@pytest.mark.parametrize(("line", "says"), CASES["dockerfile lines"])
def test_what_needs_a_container_names_line_instruction_and_the_way_out(tmp_path, line, says):
    with pytest.raises(NeedsContainer, match=f"Dockerfile:3: {says}.*--environment podman"):
        planned(tmp_path / "environment", f"FROM debian:12\n\n{line}\n")


@pytest.mark.parametrize("line", ["COPY missing.txt /", "COPY ../out /"])
def test_a_file_that_no_engine_finds_has_no_remedy(tmp_path, line):
    (tmp_path / "out").write_text("host")
    with pytest.raises(ImageError, match=r"Dockerfile:2: COPY: .*") as error:
        planned(tmp_path / "environment", f"FROM debian:12\n{line}\n")
    assert not isinstance(error.value, NeedsContainer)


@pytest.mark.parametrize("image", ["nvidia/cuda:12", "ghcr.io/org/python:3", "python-data", "node"])
def test_an_image_that_nothing_here_stands_for(tmp_path, image):
    with pytest.raises(NeedsContainer, match=rf"Dockerfile:1: .* does not stand in for {image}"):
        planned(tmp_path, f"FROM {image}\n")


def test_a_prebuilt_image_gets_the_folder_as_its_working_directory(tmp_path):
    (tmp_path / "data.txt").write_text("d")
    made = read_image(tmp_path, "docker.io/library/ubuntu:24.04")
    (laid,) = made.steps
    assert isinstance(laid, Lay) and laid.files.file("data.txt") == b"d"


def test_files_that_a_dockerignore_leaves_out_are_not_copied(tmp_path):
    with pytest.raises(NeedsContainer, match="dockerignore"):
        planned(tmp_path, "FROM debian\nCOPY . /app\n", **{".dockerignore": "folder\n"})


def test_a_huge_dockerfile_is_refused(tmp_path):
    with pytest.raises(ImageError, match="Dockerfile"):
        planned(tmp_path, "FROM debian\n" + "#" * (2 << 20))


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
        ({"tpu": {"type": "v5e"}}, "tpu"),
    ],
)
def test_what_nothing_here_provides_is_one_line(tmp_path, config, says):
    with pytest.raises(ImageError, match=rf"environment\..*{says}.*harbor run -e docker"):
        defined(tmp_path, EnvironmentConfig(**config), {})
