"""The packages that are built do what they promise, from an empty folder, and stay small.

    python -m tests.soak.base_install [--python PYTHON]... [--humaneval FILE]

Builds the sdist and from it the wheel, and checks their metadata by twine. For each interpreter, makes a
fresh environment, installs the wheel there, measures it, and runs each command as a user would who has
no checkout; then installs the sdist, and each extra but `train`, into fresh environments of their own,
and uses it. Needs a package index. Takes some five minutes, and ten for the extras.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coding_model_project.data.problems import write_problems
from tests.completion_server import CompletionServer, serving
from tests.fakes import stdin_problem
from tests.processes import ran
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import training, write_run
from tests.tables import tables

ROOT = Path(__file__).parents[2]
LIMIT_MB = 330
"""Limit of the size of site-packages, including pip."""

GOLD = "print(sum(map(int, input().split())))"
PROBLEM = stdin_problem(("1 2", "3"), id="mine/1", gold=(GOLD,), bad=("print(4)",))
API = f"""
import coding_model_project as cmp

if __name__ == "__main__":
    problem = cmp.Problem.simple("Add.", tests=[cmp.Test(cmp.Stdin("1 2"), expected="3")])
    verdict = cmp.judge(problem, "```python\\n{GOLD}\\n```")
    print("passed:", verdict.passed)
"""
SUM, NO_COMMA = tables("base_install")["problems"]
EXTRAS = tables("base_install")["extras"]
"""For each extra a command that needs it, and a word of its output."""
UNWANTED = ("Traceback", "make setup", "requirements/")
"""Words that no output may contain: an installed wheel has no Makefile and no checkout."""


class Base:
    """A fresh environment with a built package, and an empty working folder."""

    def __init__(self, folder: Path, python: str, package: Path, extra: str = "") -> None:
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.failed: list[str] = []
        # With PYTHONPATH pip would take what lies there for installed.
        dropped = ("PYTHONPATH", "PYTHONHOME", "CODING_DATA_DIR")
        self.environment = {k: v for k, v in os.environ.items() if k not in dropped}
        self.environment |= {"COLUMNS": "200", "HF_HUB_OFFLINE": "1"}
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        self.pip("install", f"{package}[{extra}]" if extra else package)

    def pip(self, command: str, *arguments: str | Path) -> None:
        words = [self.bin / "pip", command, "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(words, env=self.environment, check=True)

    def check(self, name: str, good: bool, detail: str = "") -> None:
        print(f"{'ok  ' if good else 'FAIL'} {name}{f': {detail}' if detail else ''}", flush=True)
        if not good:
            self.failed.append(name)

    def run(self, command: str, *, code: int = 0, holds: str = "") -> str:
        """Run `coding-model ...` or `python ...`, and check its exit code and a word of its output."""
        program, *arguments = command.split(" ")
        done = ran(
            [self.bin / program, *arguments], cwd=self.work, env=self.environment, timeout=600
        )
        output = done.stdout + done.stderr
        good = done.returncode == code and holds in output
        good = good and not any(word in output for word in UNWANTED)
        last = (output.strip().splitlines() or [""])[-1]
        self.check(command, good, last if good else f"exit code {done.returncode}\n{output}")
        return output


def packaged(wheel: Path) -> set[str]:
    """Return the files under version control that the wheel lacks."""
    listed = subprocess.run(
        ["git", "ls-files", "coding_model_project", "recipes"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return set(listed) - set(zipfile.ZipFile(wheel).namelist())


def size_mb(folder: Path) -> int:
    done = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def write_parquet(path: Path) -> None:
    """A data set of one problem as the hub has it."""
    row = {
        "task_id": "HumanEval/0",
        "prompt": 'def add(a, b):\n    """Add."""\n',
        "canonical_solution": "    return a + b\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
        "entry_point": "add",
    }
    pq.write_table(pa.Table.from_pylist([row]), path)


def judging(base: Base, humaneval: Path | None) -> None:
    (base.work / "sum.py").write_text("print(1 + 2)\n")
    write_problems(base.work / "P.jsonl", [PROBLEM])
    completion = {"problem_id": "mine/1", "completion": f"```python\n{GOLD}\n```"}
    (base.work / "C.jsonl").write_text(json.dumps(completion) + "\n")
    base.run("coding-model --version", holds="coding-model 0.")
    base.run("coding-model --help", holds="Usage: coding-model")
    base.run("python -m coding_model_project --help", holds="python -m recipes.grpo")
    base.run("coding-model sandbox check", holds="conformance: passed")
    base.run("coding-model sandbox run sum.py", holds="3")
    base.run("coding-model grade --problems P.jsonl --completions C.jsonl --out V.jsonl")
    base.check("its verdict", '"passed":true' in (base.work / "V.jsonl").read_text())
    base.run("coding-model data preflight mine --path P.jsonl", holds='"bad_rejected": 1')
    write_parquet(base.work / "humaneval.parquet")
    base.run(
        "coding-model data preflight humaneval --path humaneval.parquet", holds='"gold_accepted": 1'
    )
    base.run("coding-model data preflight tinycode_test --limit 20", holds='"gold_accepted": 20')
    if humaneval is not None:
        preflight = f"coding-model data preflight humaneval --path {humaneval.resolve()}"
        base.run(preflight, holds='"gold_accepted": 164')
    base.run("coding-model data export-harbor tinycode_test --limit 2 --out tasks")
    base.run("coding-model harbor grade tasks --oracle", holds='"reward": 1.0')
    (base.work / "api.py").write_text(API)
    base.run("python api.py", holds="passed: True")


def evaluating(base: Base) -> None:
    """Evaluate a served model, and check the evaluation's page."""
    with serving(CompletionServer(lambda _, __: f"```python\n{GOLD}\n```")) as server:
        base.run(
            "coding-model eval run --dataset mine=P.jsonl --model toy --out evaluated "
            f"--base-url {server.url}"
        )
    metrics = base.work / "evaluated" / "metrics.json"
    base.check("its metrics", metrics.is_file() and '"pass@k"' in metrics.read_text())
    base.check("its page", metrics.with_name("report.html").is_file())


def refusing(base: Base) -> None:
    """Check that each missing package gives a one-line error that names the extra."""
    write_run(base.work / "run", rollouts=list(training(n_steps=2)))
    base.run("coding-model doctor", code=1, holds="coding-model-project[train]")
    base.run("coding-model report run --serve", code=2, holds="coding-model-project[serve]")
    base.run("coding-model sandbox serve", code=2, holds="coding-model-project[serve]")
    base.run("coding-model data prepare tinycode", code=2, holds="coding-model-project[rows]")
    base.run("python -m recipes.grpo --help", holds="python -m recipes.grpo")
    base.run("python -m recipes.grpo", code=2, holds="coding-model-project[train]")
    base.run("coding-model report run --out page.html", holds="samples")


def with_extra(base: Base, extra: str) -> None:
    """Use an extra's libraries, of `all` those of all its parts."""
    write_problems(base.work / "P.jsonl", [PROBLEM])
    for name, problem, completion in (("sum", SUM, "\\boxed{3}"), ("comma", NO_COMMA, "Hi.")):
        (base.work / f"{name}.jsonl").write_text(json.dumps(problem) + "\n")
        line = {"problem_id": f"{name}/1", "completion": completion}
        (base.work / f"{name}s.jsonl").write_text(json.dumps(line) + "\n")
    for name, passed in (("one", False), ("two", True)):
        outcomes = {f"mine/{i}": [passed] for i in range(20)}
        write_evaluation(base.work / "evaluated" / name, outcomes, model=name)
    parts = ("stats", "rows", "dedup", "math", "instructions", "serve")
    for part in parts if extra == "all" else (extra,):
        command, word = EXTRAS[part]
        base.run(command, holds=word)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist and from it the wheel, and check what an index would show of them."""
    tools = folder / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "pip", "install", "--quiet", "build", "twine"], check=True)
    subprocess.run(
        [tools / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    built = sorted((folder / "dist").iterdir(), key=lambda path: path.suffix)
    subprocess.run([tools / "bin" / "twine", "check", "--strict", *built], check=True)
    sdist, wheel = built
    return sdist, wheel


def checked(
    folder: Path, python: str, sdist: Path, wheel: Path, humaneval: Path | None
) -> list[str]:
    """Return the names of the checks that failed with an interpreter."""
    base = Base(folder / "wheel", python, wheel)
    size = size_mb(next((folder / "wheel" / "venv" / "lib").glob("python*/site-packages")))
    base.check("size", size <= LIMIT_MB, f"{size} MB of at most {LIMIT_MB}")
    missing = packaged(wheel)
    base.check("files in the wheel", not missing, ", ".join(sorted(missing)))
    judging(base, humaneval)
    evaluating(base)
    refusing(base)
    failed = base.failed
    source = Base(folder / "sdist", python, sdist)
    (source.work / "api.py").write_text(API)
    source.run("python api.py", holds="passed: True")
    failed += source.failed
    for extra in (*EXTRAS, "all"):
        print(f"with the extra {extra}:")
        one = Base(folder / extra, python, wheel, extra)
        with_extra(one, extra)
        failed += one.failed
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", action="append", help="Check with this interpreter; repeatable."
    )
    parser.add_argument("--humaneval", type=Path, help="Judge the solutions of this file, too.")
    options = parser.parse_args()
    failed: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="base_install_") as folder:
        sdist, wheel = build(Path(folder))
        for number, python in enumerate(options.python or [sys.executable]):
            print(f"== {python}", flush=True)
            where = Path(folder) / str(number)
            failed[python] = checked(where, python, sdist, wheel, options.humaneval)
    print(json.dumps({"failed": failed}))
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
