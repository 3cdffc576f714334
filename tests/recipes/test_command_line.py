"""A recipe's command line; a sweep's members: refused before the first starts, alone when they fail."""

from __future__ import annotations

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch import command_line
from coding_model_project.launch.command_line import parse
from tests import fresh
from tests.processes import ran
from tests.tables import tables

CASES = tables("launch")

pytestmark = pytest.mark.slow

RUN = "import runpy; runpy.run_module('recipes.grpo', run_name='__main__')"


def test_members_are_named_by_what_is_swept_only():
    names = command_line.member_naming(
        ["experiment=dense,sparse", "coding.seed=1,2", "trainer.nnodes=1"]
    )
    assert "hydra.job.config.override_dirname.exclude_keys=[hardware,trainer.nnodes]" in names


@pytest.mark.parametrize(
    ("bad", "said"),
    tables("recipes")["wrong member"],
)
def test_a_wrong_member_is_refused_before_any_starts(bad, said):
    with pytest.raises(ConfigError, match=said):
        command_line.check_members("grpo", [bad], ["hardware=cpu"])


@pytest.mark.parametrize("key", ["coding.checkpoints.url", "coding.mirror.url"])
def test_members_that_share_a_url_are_refused_before_any_starts(key, tmp_path):
    given = ["coding.seed=1,2", f"coding.run_dir={tmp_path}"]
    with pytest.raises(ConfigError, match=rf"{key}=s3://b/x: several members.*{{coding.seed}}"):
        command_line.check_members("grpo", [*given, f"{key}=s3://b/x"], ["hardware=cpu"])
    own = "${coding.seed}" if "mirror" in key else "${coding.run_dir}"
    command_line.check_members("grpo", [*given, f"{key}=s3://b/{own}"], ["hardware=cpu"])


def test_a_failed_member_is_one_line_and_the_others_go_on(tmp_path):
    """Two members that fail at their checks, before verl is imported."""
    given = ["coding.dataset=null", "coding.problems=[]", "coding.min_memory_gb=0"]
    given += [f"coding.run_dir={tmp_path}", "actor_rollout_ref.model.path=./nowhere"]
    code = f"import sys; sys.executable = {str(fresh.python())!r}; sys.argv[0] = 'grpo'; {RUN}"
    done = ran([fresh.python(), "-c", code, "-m", "hardware=cpu", "coding.seed=1,2", *given])
    assert done.returncode == 3
    for seed in (1, 2):
        assert f"coding.seed={seed}: in {tmp_path}/coding.seed={seed}\n" in done.stdout
        assert f"error: coding.seed={seed} failed with exit code 2" in done.stderr
    assert "Traceback" not in done.stderr


# ── a recipe's command line: overrides and flags in any order ─────────────────────────────────────


@pytest.mark.parametrize("line", CASES["flags_stand_anywhere"])
def test_flags_stand_anywhere(line):
    found = parse(line.split())
    assert found.overrides == ("coding.seed=2", "~data.seed")
    assert found.hydra in (("--cfg", "job"), ("-c", "job"), ("--cfg=job",))
    assert (found.shows, found.sweeps) == (True, False)


def test_a_sweep_and_values_of_overrides():
    found = parse(["hardware=cpu", "-m", "trainer.save_freq=-1", "coding.seed=1,2"])
    assert found.sweeps
    assert found.value("hardware") == "cpu"
    assert found.value("coding.force") is None


@pytest.mark.parametrize(
    "line", ["--config=r/config.yaml coding.run_dir=n", "coding.run_dir=n --config r/config.yaml"]
)
def test_a_recorded_configuration(line):
    found = parse(line.split())
    assert (found.recorded, found.hydra) == ("r/config.yaml", ())


@pytest.mark.parametrize(("line", "says"), CASES["what_cannot_be_read"])
def test_what_cannot_be_read(line, says):
    with pytest.raises(ConfigError) as caught:
        parse(line.split())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
