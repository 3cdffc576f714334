"""A real S3 server on this machine, moto's, that can go away and come back with what it had."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coding_model_project.http import free_port

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer

BUCKET = "bucket"
SECRET = "a-secret-access-key"


class S3Server:
    """moto's server in a thread. Its state belongs to the process, so that it outlives `stop`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self._server: ThreadedMotoServer | None = None
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.stop()
        yield
        self.start()

    @property
    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="testing",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def objects(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def content(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def upload(self, path: Path, key: str) -> str:
        """Upload a file, or all files of a folder; returns the URL."""
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                below = f"/{file.relative_to(path).as_posix()}" if path.is_dir() else ""
                self.client.upload_file(str(file), BUCKET, key + below)
        return f"s3://{BUCKET}/{key}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with one empty bucket, for which the environment is set meanwhile."""
    from moto.s3.models import s3_backends
    from s3fs import S3FileSystem

    s3_backends.reset()
    server = S3Server()
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            S3FileSystem.clear_instance_cache()
            server.client.create_bucket(Bucket=BUCKET)
            yield server
    finally:
        server.stop()
        S3FileSystem.clear_instance_cache()
