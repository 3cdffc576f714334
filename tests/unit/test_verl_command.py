"""Commands of verl's trainer, as people's scripts write them."""

import pytest

from coding_model_project.doctor.verl_command import read
from coding_model_project.errors import ConfigError

MAIN = "python3 -m verl.trainer.main_ppo"


@pytest.mark.parametrize(
    ("script", "overrides"),
    {
        "continued lines with comments between": (
            f"{MAIN} a.b=1 \\\n    # a.old=2 \\\n    a.c=3 2>&1 | tee log.txt\n",
            ["a.b=1", "a.c=3"],
        ),
        "variables and their defaults": (
            f'N=${{N:-8}}\nexport M=/m$N  # don\'t\n{MAIN} a.n=$N a.m="${{M}}" a.d=${{D:-${{E:-x}}/y}}',
            ["a.n=8", "a.m=/m8", "a.d=x/y"],
        ),
        "unknown values keep their place": (
            f"{MAIN} a.b=$HOME/x a.c=$(date +%s) a.d=`hostname`",
            ["a.b=$HOME/x", "a.c=$unknown", "a.d=$unknown"],
        ),
        "arithmetic": (
            f"A=1024\nB=$((A * 4))\n{MAIN} a.b=$(( (A + $B) * 2 ))",
            ["a.b=10240"],
        ),
        "arrays": (
            "D=(\n  a.b=1  # one\n  \"a.c=['x', 'y']\"\n)\nE=()\nE+=( a.d=2 )\n"
            f'{MAIN} "${{D[@]}}" ${{E[@]}} $@',
            ["a.b=1", "a.c=['x', 'y']", "a.d=2"],
        ),
        "a variable of several overrides": (f"X='a.b=1 a.c=2'\n{MAIN} $X", ["a.b=1", "a.c=2"]),
        "quotes": (
            f"{MAIN} 'a.l=[\"x\",\"y\"]' \"+a.k='v w'\" 'a.i=${{a.b}}/x' ++a.f= ~a.g",
            ['a.l=["x","y"]', "+a.k='v w'", "a.i=${a.b}/x", "++a.f=", "~a.g"],
        ),
        "behind other programs": (
            f"ray job submit --address=$A --runtime-env=r.yaml -- uv run --frozen {MAIN} a.b=1",
            ["a.b=1"],
        ),
        "in a shell of its own": (f'srun bash -c "{MAIN} a.b=1 a.c=2"', ["a.b=1", "a.c=2"]),
        "a list": ("a.b=1 +a.c='x y'\n", ["a.b=1", "+a.c=x y"]),
        "nothing before or beside": (
            f"cat <<EOF > x.py\npython3 -m x.y a.b=0\nEOF\npython3 prepare.py --to x\n{MAIN} a.b=1",
            ["a.b=1"],
        ),
    }.values(),
)
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


@pytest.mark.parametrize("text", ["", "echo hello", f"{MAIN} 'a.b=1"])
def test_what_is_no_command_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match="--verl-overrides") as caught:
        read(text)
    assert "\n" not in str(caught.value)
