"""Commands of verl's trainer, as people's scripts write them."""

import pytest

from coding_model_project.doctor.verl_command import MAIN_PPO, as_text, check, read
from coding_model_project.errors import ConfigError
from coding_model_project.launch.verl_keys.table import Effect
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


@pytest.mark.verl
def test_a_configuration_in_a_place_that_the_script_computes(tmp_path):
    """verl's scripts begin with PROJECT_DIR="$(pwd)"."""
    (tmp_path / "config").mkdir()
    own = tmp_path / "config/mine.yaml"
    own.write_text("defaults: [ppo_trainer]\nactor_rollout_ref: {rollout: {name: vllm}}\n")
    script = tmp_path / "train.sh"
    script.write_text(f'P="$(pwd)"\n{MAIN} --config-path="$P/config" --config-name=mine a.b=1\n')
    (found,) = check(str(script))
    assert found.command.own is not None
    assert "actor_rollout_ref.rollout.name" not in found.of(Effect.missing)
    own.unlink()
    (found,) = check(str(script))
    assert not found.of(Effect.missing)  # it may be in the file
    assert "config/mine.yaml is not here" in "\n".join(as_text([found]))


def test_a_program_that_starts_the_trainer(tmp_path):
    """Some launch scripts are Python: a list of texts, or one text for a shell."""
    program = tmp_path / "launch.py"
    words = f"""[sys.executable, "-m", "{MAIN_PPO}", "a.b=1", f"c.d={{N}}", "a.e=[1,2]"]"""
    program.write_text(f'"""Starts a.b=2 and more."""\nsubprocess.run({words}, check=True)\n')
    (command,) = read(str(program))
    assert command.overrides == ("a.b=1", "c.d=$N", "a.e=[1,2]")
    program.write_text(f'os.system(f"""{MAIN} \\\\\n a.b=1 \\\\\n c.d={{N}}""")\n')
    (command,) = read(str(program))
    assert command.overrides == ("a.b=1", "c.d=$N")


def test_a_script_that_includes_another(tmp_path):
    """Without the other, nothing that its variables may hold is missing."""
    common = tmp_path / "common.sh"
    common.write_text("MORE=(a.b=1)\n")
    script = tmp_path / "train.sh"
    script.write_text(f'. "$(dirname "$0")/common.sh"\n{MAIN} "${{MORE[@]}}" c.d=2 "$@"\n')
    (command,) = read(str(script))
    assert (command.overrides, command.lacks) == (("a.b=1", "c.d=2"), ())
    common.unlink()
    (command,) = read(str(script))
    assert (command.overrides, command.lacks) == (("c.d=2",), ("$MORE",))


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
