"""Jobs on Amazon SageMaker: training jobs in a container image that has the requirements.

The source is uploaded as an input channel. SageMaker continuously copies `/opt/ml/checkpoints`, the run's
folder, to S3. It copies the folder back when a job starts with the same URL, so the run resumes. `fetch`
reads the copy on S3.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.http import reason
from coding_model_project.launch.jobs.base import (
    SAGEMAKER_RUN_DIR,
    Job,
    JobState,
    SageMakerOptions,
    require_hardware,
)

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
class SageMakerBackend(SageMakerOptions):
    """A back end for one region's training jobs."""

    def check(self, job: Job) -> None:
        if not self.region:
            raise ConfigError("--region: required with --backend sagemaker")
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
            raise ConfigError("--image=: give the image's URI in ECR")

    def text(self, job: Job) -> str:
        return shlex.join(job.words("python"))

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        source = f"{job.mirror.rstrip('/')}-source/{job.name}.zip"
        bucket, _, key = source.removeprefix("s3://").partition("/")
        with aws("s3", self.region) as client:
            client.upload_file(str(package), bucket, key)
        command = (
            f"mkdir -p {_CODE} && cd {_CODE} && python -m zipfile -e {_SOURCE}/{job.name}.zip . && "
            f"exec {self.text(job)}"
        )
        channel = {
            "S3DataType": "S3Prefix",
            "S3Uri": source,
            "S3DataDistributionType": "FullyReplicated",
        }
        with aws("sagemaker", self.region) as client:
            client.create_training_job(
                TrainingJobName=job.name,
                RoleArn=self.role,
                AlgorithmSpecification={
                    "TrainingImage": self.image,
                    "TrainingInputMode": "File",
                    "ContainerEntrypoint": ["bash", "-c"],
                    "ContainerArguments": [command],
                },
                InputDataConfig=[
                    {"ChannelName": "source", "DataSource": {"S3DataSource": channel}}
                ],
                OutputDataConfig={"S3OutputPath": f"{job.mirror.rstrip('/')}-output"},
                CheckpointConfig={"S3Uri": job.mirror, "LocalPath": SAGEMAKER_RUN_DIR},
                ResourceConfig={
                    "InstanceType": self.instance_type,
                    "InstanceCount": 1,
                    "VolumeSizeInGB": _GB,
                },
                StoppingCondition={"MaxRuntimeInSeconds": int(self.max_hours * 3600)},
            )
        return {}

    def state(self, job: Job) -> JobState:
        try:
            with aws("sagemaker", self.region) as client:
                found = client.describe_training_job(TrainingJobName=job.name)
        except ConfigError as error:
            if "not find" not in str(error) and "not found" not in str(error):
                raise
            return JobState.unknown
        if found.get("SecondaryStatus") in ("Starting", "Pending", "Downloading"):
            return JobState.pending
        return _STATES.get(found["TrainingJobStatus"], JobState.unknown)

    def log(self, job: Job) -> bytes:
        with aws("logs", self.region) as client:
            pages = client.get_paginator("filter_log_events").paginate(
                logGroupName=_LOG_GROUP, logStreamNamePrefix=f"{job.name}/"
            )
            try:
                events = [event for page in pages for event in page["events"]]
            except client.exceptions.ResourceNotFoundException:
                return b""  # the account's first job has not written any output yet
        return "".join(event["message"].rstrip("\n") + "\n" for event in events).encode()

    def ask_to_stop(self, job: Job) -> bool:
        """Stop the job: SageMaker sends SIGTERM, and SIGKILL 120 s later."""
        self.kill(job)
        return True

    def kill(self, job: Job) -> None:
        with aws("sagemaker", self.region) as client:
            client.stop_training_job(TrainingJobName=job.name)


@contextmanager
def aws(service: str, region: str) -> Iterator[Any]:
    """Yield a client of a service of AWS; boto3 retries transient errors.

    Raises:
        ConfigError: credentials or arguments are wrong.
        JobError: AWS does not answer, or fails.
    """
    try:
        yield boto3.client(service, region_name=region)  # pyrefly: ignore[no-matching-overload]
    except ClientError as error:
        about = error.response.get("Error", {})
        text = f"{service} {error.operation_name}: {about.get('Code')}: {about.get('Message')}"
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if "ExpiredToken" in text or "InvalidClientTokenId" in text:
            text += "; renew the AWS credentials (aws sso login, or AWS_ACCESS_KEY_ID and the like)"
        raise (ConfigError if status < 500 else JobError)(text) from error
    except HTTPClientError as error:
        raise JobError(f"--region={region}: no answer from {service} ({reason(error)})") from error
    except (BotoCoreError, S3UploadFailedError) as error:
        raise ConfigError(f"--region={region}: {service}: {error}") from error
