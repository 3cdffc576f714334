"""SageMaker, by moto: requests that AWS would take. It starts no container."""

import time
from pathlib import Path

import boto3
import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.base import SAGEMAKER_RUN_DIR as RUN_DIR
from coding_model_project.launch.jobs.base import JobState
from coding_model_project.launch.jobs.sagemaker import SageMakerBackend
from tests.tables import tables
from tests.unit.launch.jobs.conftest import make_job

pytestmark = pytest.mark.slow
ROLE = "arn:aws:iam::123456789012:role/training"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


@pytest.fixture
def aws(monkeypatch):
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
        yield


@pytest.fixture
def sagemaker_job(tmp_path):
    return make_job(
        tmp_path,
        backend="sagemaker",
        options={"region": "us-east-1"},
        overrides=("hardware=gpu_8x", f"coding.run_dir={RUN_DIR}"),
        run_dir=RUN_DIR,
        mirror="s3://bucket/runs/sft",
    )


def backend(**fields) -> SageMakerBackend:
    given = {
        "region": "us-east-1",
        "role": ROLE,
        "image": f"{REGISTRY}/training:1",
        "instance_type": "ml.p5.48xlarge",
    }
    return SageMakerBackend(**{**given, **fields})


@pytest.fixture
def package(tmp_path) -> Path:
    (tmp_path / "p.zip").write_bytes(b"zip")
    return tmp_path / "p.zip"


def test_a_job_is_made_with_its_source_and_its_checkpoints_in_s3(aws, sagemaker_job, package):
    runner = backend()
    runner.check(sagemaker_job)
    assert runner.state(sagemaker_job) is JobState.unknown
    runner.submit(sagemaker_job, package)
    made = boto3.client("sagemaker", region_name="us-east-1").describe_training_job(
        TrainingJobName="sft-1"
    )
    assert made["CheckpointConfig"] == {"S3Uri": "s3://bucket/runs/sft", "LocalPath": RUN_DIR}
    assert made["ResourceConfig"]["InstanceType"] == "ml.p5.48xlarge"
    source = made["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]
    assert source == "s3://bucket/runs/sft-source/sft-1.zip"
    stored = boto3.client("s3").get_object(Bucket="bucket", Key="runs/sft-source/sft-1.zip")
    assert stored["Body"].read() == b"zip"
    assert runner.text(sagemaker_job).startswith("python -m recipes.sft hardware=gpu_8x")
    assert runner.state(sagemaker_job) is JobState.finished  # moto's jobs end at once


def test_the_log_is_read_from_cloudwatch(aws, sagemaker_job):
    assert backend().log(sagemaker_job) == b""
    logs = boto3.client("logs", region_name="us-east-1")
    logs.create_log_group(logGroupName="/aws/sagemaker/TrainingJobs")
    stream = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "sft-1/algo-1"}
    logs.create_log_stream(**stream)
    now = int(time.time() * 1000)
    events = [{"timestamp": now, "message": "step 1"}, {"timestamp": now + 1, "message": "step 2"}]
    logs.put_log_events(**stream, logEvents=events)
    assert backend().log(sagemaker_job) == b"step 1\nstep 2\n"


@pytest.mark.parametrize(
    ("fields", "message"),
    tables("launch")["sagemaker"],
)
def test_wrong_options_are_named(sagemaker_job, fields, message):
    with pytest.raises(ConfigError, match=message):
        backend(**fields).check(sagemaker_job)


def test_a_missing_bucket_is_named(aws, tmp_path, sagemaker_job, package):
    job = make_job(tmp_path, mirror="s3://missing/run")
    with pytest.raises(ConfigError, match="s3: "):
        backend().submit(job, package)


def test_no_credentials_are_one_line(sagemaker_job, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="Unable to locate credentials"):
        backend().state(sagemaker_job)
