"""Jobs on Amazon SageMaker: training jobs in a container image that has the requirements.

The source is uploaded as an input channel. SageMaker continuously copies `/opt/ml/checkpoints`, the run's
folder, to S3. It copies the folder back when a job starts with the same URL, so the run resumes. `fetch`
reads the copy on S3.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.errors import CodingModelError, ConfigError, JobError
from coding_model_project.extras import extra
from coding_model_project.http import reason
from coding_model_project.launch.jobs.base import (
    Job,
    JobState,
    SubmissionUnknown,
    require_hardware,
)
from coding_model_project.launch.jobs.command import words

RUN_DIR = "/opt/ml/checkpoints"
_SOURCE = "/opt/ml/input/data/source"
_CODE = "/tmp/code"
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_GB = 200
_STATES = {
    "InProgress": JobState.running,
    "Completed": JobState.finished,
    "Failed": JobState.failed,
    "Stopping": JobState.running,
    "Stopped": JobState.stopped,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerBackend:
    """A back end for one region's training jobs; fields that only `submit` needs have defaults."""

    region: str
    role: str = ""
    image: str = ""
    instance_type: str = ""
    max_hours: float = 24

    def check(self, job: Job) -> None:
        require_hardware(job)
        if not re.fullmatch(r"ml\.[a-z0-9-]+\.[a-z0-9]+", self.instance_type):
            raise ConfigError(
                f"--instance-type={self.instance_type}: expected a name as in ml.p5.48xlarge"
            )
        if not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", self.role):
            raise ConfigError(f"--role={self.role}: expected arn:aws:iam::ACCOUNT:role/NAME")
        if not re.fullmatch(r"s3://[a-z0-9.-]{3,63}/\S+", job.mirror):
            raise ConfigError(
                f"--s3={job.mirror}: expected s3://BUCKET/FOLDER, a folder for this run alone"
            )
        if not self.image:
            raise ConfigError(
                "--image=: give the image's URI in ECR, or --build --push --image NAME"
            )

    def text(self, job: Job) -> str:
        return shlex.join(words(job, "python"))

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        source = f"{job.mirror.rstrip('/')}-source/{job.name}.zip"
        bucket, _, key = source.removeprefix("s3://").partition("/")
        if self._describe(job) is not None:
            raise ConfigError(
                f"--name={job.name}: {self.region} has a training job of this name; choose another"
            )
        self._call("s3", "upload_file", str(package), bucket, key)
        request = self._request(job, source)
        try:
            answer = self._call("sagemaker", "create_training_job", **request)
        except CodingModelError as error:
            # The name was free, so a job of this name is this one. boto3 repeats a request after a
            # time-out, and AWS then refuses the repetition, because the first request took the name.
            try:
                found = self._describe(job)
            except CodingModelError:
                raise SubmissionUnknown(
                    f"{error}; run `jobs list` later to see whether it runs"
                ) from error
            if found is None:
                raise
            return {"arn": found["TrainingJobArn"]}
        return {"arn": answer["TrainingJobArn"]}

    def state(self, job: Job) -> JobState:
        found = self._describe(job)
        if found is None:
            return JobState.unknown
        if found.get("SecondaryStatus") in ("Starting", "Pending", "Downloading"):
            return JobState.pending
        return _STATES.get(found["TrainingJobStatus"], JobState.unknown)

    def log(self, job: Job) -> bytes:
        lines: list[str] = []
        options: dict[str, Any] = {}
        while True:
            try:
                page = self._call(
                    "logs",
                    "filter_log_events",
                    logGroupName=_LOG_GROUP,
                    logStreamNamePrefix=f"{job.name}/",
                    **options,
                )
            except ConfigError as error:
                if "ResourceNotFound" not in str(error):
                    raise
                return b""  # the account's first job has not written any output yet
            lines += [event["message"].rstrip("\n") + "\n" for event in page["events"]]
            if "nextToken" not in page:
                return "".join(lines).encode()
            options = {"nextToken": page["nextToken"]}

    def ask_to_stop(self, job: Job) -> bool:
        """Stop the job: SageMaker sends SIGTERM, and SIGKILL 120 s later."""
        self.kill(job)
        return True

    def kill(self, job: Job) -> None:
        self._call("sagemaker", "stop_training_job", TrainingJobName=job.name)

    def _request(self, job: Job, source: str) -> dict[str, Any]:
        command = (
            f"mkdir -p {_CODE} && cd {_CODE} && python -m zipfile -e {_SOURCE}/{job.name}.zip . && "
            f"exec {self.text(job)}"
        )
        channel = {
            "S3DataType": "S3Prefix",
            "S3Uri": source,
            "S3DataDistributionType": "FullyReplicated",
        }
        return {
            "TrainingJobName": job.name,
            "RoleArn": self.role,
            "AlgorithmSpecification": {
                "TrainingImage": self.image,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["bash", "-c"],
                "ContainerArguments": [command],
            },
            "InputDataConfig": [{"ChannelName": "source", "DataSource": {"S3DataSource": channel}}],
            "OutputDataConfig": {"S3OutputPath": f"{job.mirror.rstrip('/')}-output"},
            "CheckpointConfig": {"S3Uri": job.mirror, "LocalPath": RUN_DIR},
            "ResourceConfig": {
                "InstanceType": self.instance_type,
                "InstanceCount": 1,
                "VolumeSizeInGB": _GB,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": int(self.max_hours * 3600)},
        }

    def _describe(self, job: Job) -> dict[str, Any] | None:
        try:
            return self._call("sagemaker", "describe_training_job", TrainingJobName=job.name)
        except ConfigError as error:
            if "not find" not in str(error) and "not found" not in str(error):
                raise
            return None

    def _call(self, service: str, operation: str, *arguments: Any, **options: Any) -> Any:
        """Call AWS; boto3 retries transient errors.

        Raises:
            ConfigError: credentials or arguments are wrong.
            JobError: AWS does not answer, or fails.
        """
        with extra("sagemaker"):
            import boto3
            from boto3.exceptions import S3UploadFailedError
            from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        try:
            client = boto3.client(service, region_name=self.region)
            return getattr(client, operation)(*arguments, **options)
        except ClientError as error:
            about = error.response["Error"]
            text = f"{service} {operation}: {about.get('Code')}: {about.get('Message')}"
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            if "ExpiredToken" in text or "InvalidClientTokenId" in text:
                text += (
                    "; renew the AWS credentials (aws sso login, or AWS_ACCESS_KEY_ID and the like)"
                )
            raise (ConfigError if status < 500 else JobError)(text) from error
        except HTTPClientError as error:
            raise JobError(
                f"--region={self.region}: no answer from {service} ({reason(error)})"
            ) from error
        except (BotoCoreError, S3UploadFailedError) as error:
            raise ConfigError(f"--region={self.region}: {service} {operation}: {error}") from error
