"""Commands of verl's trainer, as people's scripts write them."""

import pytest

from coding_model_project.doctor.verl_command import read
from coding_model_project.errors import ConfigError
from tests.tables import tables

CASES = tables("verl_commands")

MAIN = "python3 -m verl.trainer.main_ppo"


@pytest.mark.parametrize(("script", "overrides"), CASES["commands"])
def test_the_overrides_of_a_script(script, overrides):
    (command,) = read(script)
    assert list(command.overrides) == overrides


def test_the_entry_and_its_configuration(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/mine.yaml").write_text("defaults: [ppo_trainer]\ntrainer: {nnodes: 2}\n")
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nnodes 2 train.py --config-path=config --config-name mine a.b=1\n"
    )
    (command,) = read(str(script))
    assert (command.entry, command.config_name) == ("train.py", "ppo_trainer")
    assert command.own.trainer.nnodes == 2
    (alone,) = read(str(tmp_path / "config/mine.yaml"))
    assert alone.own == command.own


def test_several_commands():
    first, second = read(
        f'if [ -z "$1" ]; then\n  {MAIN} a.b=1\nelse\n  python -m x.main a.c=2\nfi\n'
    )
    assert (first.entry, second.entry) == ("verl.trainer.main_ppo", "x.main")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere.sh", "nowhere.sh: no such file"),
        ("python -m verl.trainer.sft_trainer a.b=1", "verl.trainer.sft_trainer is not checked"),
    ],
)
def test_what_is_wrong_is_named(text, says):
    with pytest.raises(ConfigError, match=says):
        read(text)


@pytest.mark.parametrize("text", ["", "echo hello", f"{MAIN} 'a.b=1"])
def test_what_is_no_command_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match="--verl-overrides") as caught:
        read(text)
    assert "\n" not in str(caught.value)
