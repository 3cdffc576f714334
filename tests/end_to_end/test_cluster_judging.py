"""Two Ray nodes judge as one machine does, and one of them dies without a loss."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import coding_model_project
from coding_model_project.data.problems import write_problems
from coding_model_project.types import Call, Problem, Stdin, Test
from tests.completion_server import CompletionServer, serving
from tests.ray_nodes import ray_nodes
from tests.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

N_PROBLEMS = 24
N_SLEEPY = 200
"""Programs that sleep for 0.3 s, while a judge is killed, a node is killed, and another one joins."""


def problems():
    """Quick ones, and one whose program fails a test."""
    return [
        Problem(
            id=f"toy/{number}",
            split="test",
            statement=f"Define add(x), which adds {number}.",
            tests=tuple(Test(Call("add", (x,)), expected=x + number) for x in (1, 2)),
            gold=(f"def add(x):\n    return x + {number}\n",),
            bad=("def add(x):\n    return None\n",),
        )
        for number in range(N_PROBLEMS)
    ]


def write_completions(path: Path, n: int) -> None:
    """Right ones, wrong ones, twice the same one and one without a program."""
    rows = []
    for number in range(n):
        right = f"```python\ndef add(x):\n    return x + {number % N_PROBLEMS}\n```"
        text = ("nothing", "```python\ndef add(x):\n    return 0\n```", right, right)[number % 4]
        rows.append({"problem_id": f"toy/{number % N_PROBLEMS}", "completion": text})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(*words, cwd, env=None, check=True):
    done = subprocess.run(
        [sys.executable, "-m", "coding_model_project", *map(str, words)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def verdicts(path):
    """Without the times, which differ."""

    def timeless(row):
        results = [{**one, "cpu_s": 0} for one in row["results"]]
        return {**row, "results": results, "judge_s": 0, "cached": False}

    return [timeless(json.loads(line)) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    write_problems(folder / "p.jsonl", problems())
    write_completions(folder / "c.jsonl", 120)
    return folder


def answer(prompt, seed):
    number = prompt.partition("adds ")[2].partition(".")[0]
    return f"```python\ndef add(x):\n    return x + {number if seed % 3 else 0}\n```"


@pytest.mark.xdist_group("cluster")
def test_two_nodes_judge_as_one_machine_and_one_dies_without_a_loss(toy, tmp_path, popen):
    given = ("--problems", toy / "p.jsonl", "--completions", toy / "c.jsonl")
    command("grade", *given, "--out", tmp_path / "here.jsonl", cwd=tmp_path)
    here = json.loads(
        command(
            *("data", "preflight", "toy", "--path", toy / "p.jsonl", "--mutants", "2"), cwd=tmp_path
        ).stdout.splitlines()[-1]
    )
    sleepy = [
        Problem.simple(f"Wait {n}.", id=f"sleepy/{n}", tests=[Test(Stdin(""), expected="1")])
        for n in range(N_SLEEPY)
    ]
    write_problems(tmp_path / "sleepy.jsonl", sleepy)
    program = "```python\nimport time\ntime.sleep(0.3)\nprint(1)\n```"
    rows = [{"problem_id": one.id, "completion": program} for one in sleepy]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ray_nodes([{0}, {0}]) as nodes:
        on_both = ("--cluster", "ray", "--ray-address", nodes.address)
        done = command("grade", *given, "--out", tmp_path / "there.jsonl", *on_both, cwd=tmp_path)
        assert "judging on 2 nodes, 2 programs at once" in done.stderr
        assert verdicts(tmp_path / "there.jsonl") == verdicts(tmp_path / "here.jsonl")
        wait_for(lambda: not nodes.processes("NodeServer"))

        checked = command(
            *("data", "preflight", "toy", "--path", toy / "p.jsonl", "--mutants", "2"),
            *("--journal", tmp_path / "journal.jsonl", *on_both),
            cwd=tmp_path,
        )
        there = json.loads(checked.stdout.splitlines()[-1])
        assert there | {"seconds": 0} == here | {"seconds": 0}

        check_an_evaluation(toy, tmp_path, nodes.environment)

        journal = tmp_path / "kept.jsonl"
        judging = popen(
            [
                *(sys.executable, "-m", "coding_model_project", "grade"),
                *("--problems", tmp_path / "sleepy.jsonl", "--completions", tmp_path / "s.jsonl"),
                *("--out", tmp_path / "killed.jsonl", "--journal", journal, *on_both),
            ],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for_lines(journal, 10, judging)
        judges = nodes.processes("NodeServer")
        assert len(judges) == 2, "one judge a node"
        judges[0].kill()
        wait_for(lambda: len(set(nodes.processes("NodeServer")) - set(judges)) == 1)
        nodes.kill(1)
        nodes.start({0})
        _, said = judging.communicate(timeout=200)
        assert judging.returncode == 0, said
        assert "is quarantined, its work goes elsewhere: its judge died" in said
        assert "judges again" in said and "judges too" in said
        assert [row["passed"] for row in verdicts(tmp_path / "killed.jsonl")] == [True] * N_SLEEPY

        # With all that is kept, neither a node nor a sandbox is asked again.
        size = journal.stat().st_size
        command(
            *("grade", "--problems", tmp_path / "sleepy.jsonl"),
            *("--completions", tmp_path / "s.jsonl", "--journal", journal),
            *("--out", tmp_path / "again.jsonl", *on_both),
            cwd=tmp_path,
        )
        assert journal.stat().st_size == size
        assert verdicts(tmp_path / "again.jsonl") == verdicts(tmp_path / "killed.jsonl")


def check_an_evaluation(toy, tmp_path, environment):
    """Check that the nodes judge an evaluation of a server as this machine does."""
    options = [
        *("--model", "toy", "--dataset", toy / "p.jsonl", "--protocol", "sampled", "--n", "2")
    ]
    rates = []
    with serving(CompletionServer(answer)) as server:
        options += ["--base-url", server.url]
        for name, *where in (["whole"], ["shared", "--cluster", "ray"]):
            out = tmp_path / name
            done = command(
                *("eval", "run", *options, "--out", out, *where), cwd=tmp_path, env=environment
            )
            assert ("judging on 2 nodes" in done.stdout) == bool(where)
            rates.append(json.loads((out / "metrics.json").read_text()))
    assert rates[0]["p"]["errors"] == rates[1]["p"]["errors"]


@pytest.mark.soak
def test_a_killed_command_resumes_and_leaves_no_process(tmp_path, popen):
    write_problems(tmp_path / "p.jsonl", problems())
    write_completions(tmp_path / "c.jsonl", 3000)
    given = ("--problems", tmp_path / "p.jsonl", "--completions", tmp_path / "c.jsonl")
    command("grade", *given, "--out", tmp_path / "here.jsonl", cwd=tmp_path)
    with ray_nodes([{0}, {1}]) as nodes:
        on_both = ("--cluster", "ray", "--journal", tmp_path / "kept.jsonl")
        words = ["grade", *given, "--out", tmp_path / "there.jsonl", *on_both]
        judging = popen(
            [sys.executable, "-m", "coding_model_project", *map(str, words)],
            cwd=tmp_path,
            env=nodes.environment,
        )
        n_kept = wait_for_lines(tmp_path / "kept.jsonl", 200, judging)
        judging.send_signal(signal.SIGKILL)
        judging.wait()
        wait_for(lambda: not nodes.processes("NodeServer"))
        command(*words, cwd=tmp_path, env=nodes.environment)
        assert verdicts(tmp_path / "there.jsonl") == verdicts(tmp_path / "here.jsonl")
        rows = (tmp_path / "kept.jsonl").read_text().splitlines()
        assert len(rows) < 3000 + n_kept, "what was kept is not judged again"


@pytest.mark.soak
def test_a_node_that_would_judge_differently_is_named(toy, tmp_path):
    package = Path(coding_model_project.__file__).parent
    other = tmp_path / "other" / package.name
    shutil.copytree(package, other, ignore=shutil.ignore_patterns("__pycache__"))
    base = other / "grading" / "base.py"
    text = base.read_text()
    base.write_text(text.replace('GRADER_VERSION = "', 'GRADER_VERSION = "0'))
    given = ("--problems", toy / "p.jsonl", "--completions", toy / "c.jsonl")
    with ray_nodes([{0}]) as nodes:
        nodes.start({0}, env={"PYTHONPATH": str(other.parent)})
        done = command(
            "grade", *given, "--cluster", "ray", cwd=tmp_path, env=nodes.environment, check=False
        )
    assert done.returncode == 3
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("error:")]
    assert "nodes would judge differently" in line and "0" in line


@pytest.mark.soak
@pytest.mark.verl
def test_verls_rollout_generates_on_both_nodes(world, tmp_path):
    options = [
        *("--model", world.root / "model", "--dataset", world.root / "problems.jsonl"),
        *("--prompt", "bare", "--protocol", "sampled", "--n", "8", "--max-tokens", "32"),
        *("--mode", "verl", "--dtype", "float32", "--concurrency", "16"),
    ]
    command("eval", "run", *options, "--out", tmp_path / "here", cwd=tmp_path)
    with ray_nodes([None, None], "--num-gpus=1", "--num-cpus=16") as nodes:
        done = command(
            *("eval", "run", *options, "--out", tmp_path / "there", "--cluster", "ray"),
            cwd=tmp_path,
            env=nodes.environment,
        )
    assert "judging on 2 nodes" in done.stdout

    def samples(name):
        rows = map(json.loads, (tmp_path / name / "completions.jsonl").read_text().splitlines())
        return {(row["problem"], row["sample"]): row["tokens"] for row in rows}

    here, there = samples("here"), samples("there")
    assert here.keys() == there.keys()
    # The rounding of sums depends on the batch, and may tip a token now and then.
    assert sum(here[key] != there[key] for key in here) <= len(here) // 16


def wait_for_lines(path, n, process):
    while not path.exists() or (found := path.read_bytes().count(b"\n")) < n:
        assert process.poll() is None
        time.sleep(0.05)
    return found
