"""A recipe's command line: overrides and flags in any order."""

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.command_line import parse
from tests.tables import tables

CASES = tables("launch")


@pytest.mark.parametrize("line", CASES["flags_stand_anywhere"])
def test_flags_stand_anywhere(line):
    found = parse(line.split())
    assert found.overrides == ("coding.seed=2", "~data.seed")
    assert found.hydra in (("--cfg", "job"), ("-c", "job"), ("--cfg=job",))
    assert (found.debug, found.shows, found.sweeps) == (True, True, False)


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
