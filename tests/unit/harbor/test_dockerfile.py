"""Dockerfiles without a container engine."""

from pathlib import Path

import pytest

from coding_model_project.harbor.containers.dockerfile import ImageError
from coding_model_project.harbor.environment.image import Execute, Lay, Plan, plan

FOLLOWED = """# syntax=docker/dockerfile:1
ARG TAG=3.12
FROM python:${TAG}-slim AS base
LABEL maintainer="me"
ENV A=1 B="two words"
ENV OLD style value
WORKDIR /srv/$A
WORKDIR sub
COPY --chown=1:1 data.txt folder/ ./
COPY data.txt renamed.txt
RUN echo one && \\
    # a comment amid it
    echo two
USER agent
RUN ["touch", "it's"]
RUN <<EOF
echo here
EOF
CMD ["python"]
EXPOSE 80
"""


def planned(folder: Path, text: str, **files: str) -> Plan:
    folder.mkdir(exist_ok=True)
    for name, content in {
        "Dockerfile": text,
        "data.txt": "d",
        "folder/in.txt": "f",
        **files,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return plan(folder)


def test_what_is_followed(tmp_path):
    made = planned(tmp_path, FOLLOWED)
    assert made.env == {"A": "1", "B": "two words", "OLD": "style value"}
    assert (made.workdir, made.user) == ("/srv/1/sub", "agent")
    lays = [step for step in made.steps if isinstance(step, Lay)]
    assert {e[0] for step in lays for e in step.files.entries} == {
        "srv/1/sub/data.txt", "srv/1/sub/in.txt", "srv/1/sub/renamed.txt",
    }  # fmt: skip
    first, second, third = (step for step in made.steps if isinstance(step, Execute))
    assert "echo one &&" in first.command and "echo two" in first.command
    assert (first.user, first.cwd, first.env["TAG"]) == (None, "/srv/1/sub", "3.12")
    assert (second.command, second.user) == ("'touch' 'it'\"'\"'s'", "agent")
    assert "echo here" in third.command
    said = "\n".join(made.notes)
    assert "stand in for python:3.12-slim" in said and "EXPOSE" in said and "CMD" in said


@pytest.mark.parametrize("mode", ["7", "755", "0755"])
def test_a_copy_gets_its_octal_mode(mode, tmp_path):
    (copied,) = planned(tmp_path, f"FROM debian\nCOPY --chmod={mode} data.txt /a\n").steps
    assert isinstance(copied, Lay)
    assert [(kind, given) for _, kind, given, _ in copied.files.entries] == [("f", int(mode, 8))]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("COPY --from=base /a /b", "COPY: --from is not supported"),
        ("COPY missing.txt /", "COPY: missing.txt: no such file"),
        ("COPY --chmod=u+x out /a", "COPY: --chmod=u+x is not supported, only an octal mode"),
        ("COPY --chmod=999 out /a", "COPY: --chmod=999 is not supported, only an octal mode"),
        ("COPY ../out /", "COPY: ../out"),
        ("ADD https://example.org/x /", "ADD: https://example.org/x is a URL or archive"),
        ("RUN --network=host true", "RUN: --network is not supported"),
        ("ONBUILD RUN true", "ONBUILD: is not supported"),
        ("FROM debian", "FROM: multi-stage builds are not supported"),
        ("FORM debian", "FORM: is not supported"),
    ],
)
def test_what_is_not_followed_names_line_instruction_and_the_way_out(tmp_path, line, says):
    (tmp_path / "out").write_text("host")
    with pytest.raises(ImageError) as error:
        planned(tmp_path / "environment", f"FROM debian:12\n\n{line}\n")
    assert f"Dockerfile:3: {says}" in str(error.value) and "--environment docker" in str(
        error.value
    )


def test_an_image_that_nothing_here_stands_for(tmp_path):
    with pytest.raises(
        ImageError, match=r"Dockerfile:1: this machine has no substitute for nvidia"
    ):
        planned(tmp_path, "FROM nvidia/cuda:12\n")


def test_a_prebuilt_image_gets_the_folder_as_its_working_directory(tmp_path):
    (tmp_path / "data.txt").write_text("d")
    made = plan(tmp_path, "docker.io/library/ubuntu:24.04")
    (laid,) = made.steps
    assert isinstance(laid, Lay) and laid.files.file("data.txt") == b"d"


@pytest.mark.parametrize(
    "text",
    [
        "ENV A=0123456789\n" + "ENV A=$A$A\n" * 40,
        "ARG A=0123456789\n" + "ARG A$A=$A\n" + "ENV B=" + "$A" * 50_000,
        "ENV A=" + "${a:-" * 40_000,
        "".join(f"ENV A{n}=1\n" for n in range(3_000)),
        "WORKDIR " + "a/" * 4_000,
        "COPY **/**/**/data.txt /x\n",
        "#" * (2 << 20),
    ],
    ids=["doubling", "one line", "open braces", "instructions", "path", "folders", "size"],
)
def test_a_dockerfile_that_unfolds_is_refused(tmp_path, text):
    with pytest.raises(ImageError, match="Dockerfile"):
        planned(tmp_path, f"FROM debian\n{text}")


def test_services_take_an_engine(tmp_path):
    with pytest.raises(ImageError, match=r"docker-compose.yaml.*harbor run -e docker"):
        planned(tmp_path, "FROM debian\n", **{"docker-compose.yaml": ""})
