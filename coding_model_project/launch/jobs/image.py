"""The container image of a SageMaker job, built from the source and pushed to ECR."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.extras import extra
from coding_model_project.launch.jobs.source import unpack

CONTAINERFILE = Path(__file__).with_name("Containerfile")
_TOOLS = ("podman", "docker")


def build(package: Path, image: str, containerfile: Path) -> None:
    """Build an image from a package of the source.

    Raises:
        ConfigError: the file does not exist, or no build tool is installed.
        JobError: the build failed; it has printed why.
    """
    if not containerfile.is_file():
        raise ConfigError(f"--containerfile={containerfile}: no such file")
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        unpack(package, Path(folder))
        _tool(["build", "--tag", image, "--file", str(containerfile.absolute()), folder])


def push(image: str, region: str) -> None:
    """Push an image to ECR; create its repository if it is missing.

    Raises:
        ConfigError: the name is not an ECR image's, or AWS rejects the request.
        JobError: the push failed.
    """
    registry, repository = ecr_name(image, region)
    with extra("sagemaker"):
        from coding_model_project.launch.jobs.sagemaker import aws

    with aws("ecr", region) as ecr:
        try:
            ecr.describe_repositories(repositoryNames=[repository])
        except ecr.exceptions.RepositoryNotFoundException:
            ecr.create_repository(repositoryName=repository)
        token = ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    user, _, password = base64.b64decode(token).decode().partition(":")
    _tool(["login", "--username", user, "--password-stdin", registry], given=password)
    _tool(["push", image])


def ecr_name(image: str, region: str) -> tuple[str, str]:
    """Return the registry and the repository of an image in ECR.

    Raises:
        ConfigError: the name is not that of an ECR image in the region.
    """
    registry, _, rest = image.partition("/")
    if f".dkr.ecr.{region}." not in registry or not rest:
        raise ConfigError(
            f"--image={image}: expected ACCOUNT.dkr.ecr.{region}.amazonaws.com/NAME:TAG to push to"
        )
    return registry, rest.partition(":")[0]


def _tool(arguments: Sequence[str], given: str | None = None) -> None:
    """Run podman, or docker if podman is not installed.

    Args:
        given: text for standard input, which keeps it out of process lists.
    """
    for tool in _TOOLS:
        try:
            done = subprocess.run([tool, *arguments], input=given, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode:
            raise JobError(
                f"{tool} {arguments[0]} failed with exit code {done.returncode}; see above"
            )
        return
    raise ConfigError(f"--build, --push: neither {' nor '.join(_TOOLS)} is installed")
