"""Inspect AI's own HumanEval task in our sandbox, our scorer, and the page that shows them.

python -m tests.soak.inspect_tasks [HUMANEVAL.jsonl.gz] [--venv FOLDER]

Gold solutions must all pass and broken ones all fail; a failure of the sandbox must be an error of the
sample. Inspect is installed into an environment of its own, by default .venv/opt/inspect.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.tables import tables

ROOT = Path(__file__).parents[2]
PACKAGES = ("inspect-ai==0.3.285", "inspect-evals==0.26.0", "trio")
HUMANEVAL = "HumanEval.jsonl.gz"
N = 164
BROKEN = "    raise NotImplementedError\n"
INSIDE = "--inside"


def main() -> None:
    arguments = sys.argv[1:]
    if INSIDE in arguments:
        return inside(Path(arguments[-1]))
    folder = ROOT / ".venv" / "opt" / "inspect"
    if "--venv" in arguments:
        where = arguments.index("--venv")
        folder = Path(arguments[where + 1]).absolute()
        del arguments[where : where + 2]
    data = Path(os.environ.get("CODING_DATA_DIR") or ROOT / "data") / HUMANEVAL
    data = Path(arguments[0]) if arguments else data
    if not data.exists():
        print(f"left out: Inspect's tasks (no {data}; name the file as the first argument)")
        return None
    if problem := set_up(folder):
        print(f"left out: Inspect's tasks (it cannot be installed: {problem})")
        return None
    command = [str(folder / "bin" / "python"), "-m", "tests.soak.inspect_tasks", INSIDE]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environment["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    done = subprocess.run([*command, str(data.absolute())], cwd=ROOT, env=environment, check=False)
    return sys.exit(done.returncode)


def set_up(folder: Path) -> str | None:
    """Install Inspect and this package; print the cause if that fails."""
    if (folder / ".complete").exists():
        return None
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*pip, *PACKAGES, "-e", str(ROOT)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    (folder / ".complete").touch()
    return None


# ── in Inspect's environment ──────────────────────────────────────────────────────────────────────


def inside(data: Path) -> None:
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        local = Path("openai/openai_humaneval")  # where the hub's library looks before the hub
        local.mkdir(parents=True)
        shutil.copy(data, local / "test.jsonl.gz")
        humaneval()
        humaneval_under_trio()
        our_scorer(data)
        failures_are_errors(data)
        the_contract()
        the_page(data)


def humaneval() -> None:
    """Run the command of the docs page, with solvers that answer from the data set."""
    for name, right in (("gold", N), ("broken", 0)):
        log = command_line(name, "--epochs", "1")
        counted(f"inspect_evals/humaneval, {name}", log, right)


def humaneval_under_trio() -> None:
    """Run under Inspect's other event loop."""
    os.environ["INSPECT_ASYNC_BACKEND"] = "trio"
    counted("the same under trio", command_line("gold", "--epochs", "1", "--limit", "8"), 8, of=8)
    del os.environ["INSPECT_ASYNC_BACKEND"]


def command_line(solver: str, *options: str) -> Any:
    from inspect_ai.log import read_eval_log

    logs = Path("logs") / f"{solver}{len(options)}"
    command = [str(Path(sys.executable).parent / "inspect"), "eval", "inspect_evals/humaneval"]
    command += ["--sandbox", "coding_model", "--solver", f"{ROOT}/tests/soak/solvers.py@{solver}"]
    command += ["--model", "mockllm/model", "--display", "none", "--log-dir", str(logs), *options]
    subprocess.run(command, check=True)
    (path,) = logs.glob("*.eval")
    return read_eval_log(str(path))


def our_scorer(data: Path) -> None:
    """Judge the same programs by this project's tests."""
    for name in ("gold", "broken"):
        log = judged(name, f"humaneval={data}")
        counted(f"coding_model_project/code_problems, {name}", log, N if name == "gold" else 0)
    hidden_tests_are_not_logged()


def hidden_tests_are_not_logged() -> None:
    from inspect_ai import Task
    from inspect_ai import eval as run

    import coding_model_project as cmp
    from coding_model_project.integrations.inspect import code_samples, code_scorer
    from tests.soak.solvers import answer

    test = cmp.Test(cmp.Stdin("1 2"), expected="the-answer")
    problem = cmp.Problem.simple("Add two numbers.", tests=[test], id="a/1")
    right = answer(lambda _: "```python\nprint('the-' + 'answer')\n```")
    task = Task(code_samples([problem]), solver=right, scorer=code_scorer([problem]))
    (log,) = run(task, model="mockllm/model", display="none", log_dir="logs/one")
    counted("a problem of the caller's", log, 1, of=1)
    assert "the-answer" not in log.model_dump_json()


def judged(name: str, problems: str, added: str = "") -> Any:
    from inspect_ai import eval as run

    import coding_model_project as cmp
    from coding_model_project.integrations.inspect import code_problems
    from tests.soak.solvers import answer

    by_id = {problem.id: problem for problem in cmp.load(problems)}

    def text(problem_id: str) -> str:
        problem = by_id[problem_id]
        code = problem.gold[0] if name == "gold" else problem.statement + BROKEN
        return f"Here it is:\n```python\n{code}{added}\n```"

    (log,) = run(
        code_problems(problems), solver=answer(text), model="mockllm/model", display="none",
        log_dir="logs/ours", fail_on_error=False,
    )  # fmt: skip
    return log


def failures_are_errors(data: Path) -> None:
    """Check that failures of the sandbox are errors, for both ways of judging."""
    from inspect_ai import eval as run
    from inspect_evals.humaneval import humaneval as task

    from coding_model_project.errors import SandboxError
    from coding_model_project.sandbox.embedded import EmbeddedSandbox
    from tests.soak.solvers import gold

    works, calls = EmbeddedSandbox.run, [0]

    async def fails(self: EmbeddedSandbox, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] % 8 == 0:
            raise SandboxError("the zygote was lost")
        return await works(self, *args, **kwargs)

    EmbeddedSandbox.run = fails  # type: ignore[method-assign]
    try:
        (theirs,) = run(
            task(solver=gold()), model="mockllm/model", sandbox="coding_model", epochs=1,
            display="none", log_dir="logs/faults", fail_on_error=False,
        )  # fmt: skip
        ours = judged("gold", f"humaneval={data}", added="\n# not judged before")
    finally:
        EmbeddedSandbox.run = works  # type: ignore[method-assign]
    for log in (theirs, ours):
        lost = [sample for sample in log.samples if sample.error]
        assert lost and not any(sample.scores for sample in lost)
        assert all("the zygote was lost" in sample.error.message for sample in lost)
        right = [sample for sample in log.samples if not sample.error]
        assert all(score.value == "C" for sample in right for score in sample.scores.values())
        print(f"failures of the sandbox: {len(lost)} errors, {len(right)} accepted, no score of 0")


def counted(what: str, log: Any, right: int, of: int = N) -> None:
    assert log.status == "success", log.error
    values = [score.value for sample in log.samples for score in (sample.scores or {}).values()]
    errors = [sample.error.message for sample in log.samples if sample.error]
    print(f"{what}: {values.count('C')}/{len(log.samples)} accepted, {len(errors)} errors")
    assert not errors, errors[0]
    assert (len(values), values.count("C")) == (of, right)


def the_contract() -> None:
    """Run Inspect's provider checks that this provider can pass, and check its errors for the rest."""
    import anyio
    from inspect_ai.util._sandbox import self_check

    from coding_model_project.integrations.inspect import CodingModelSandbox

    async def leave(*_: Any) -> None:
        """Do nothing: there is no `rm`, and a sample's files are deleted with it."""

    async def check() -> None:
        self_check._cleanup_file = leave
        await CodingModelSandbox.task_init("task", None)
        for name in FILES:
            await getattr(self_check, name)(CodingModelSandbox())
        await programs(CodingModelSandbox())

    anyio.run(check)
    print(f"contract: {len(FILES)} of Inspect's own checks of files, and ours of programs")


FILES = tables("inspect_checks")
"""Inspect's own checks of files."""


async def programs(sandbox: Any) -> None:
    from inspect_ai.util import OutputLimitExceededError, SandboxUserUnsupportedError

    async def out(*cmd: str, **options: Any) -> tuple[bool, int, str]:
        result = await sandbox.exec(list(cmd), **options)
        return result.success, result.returncode, result.stdout + result.stderr

    assert await out("python3", "-c", "print(input())", input="Grüße\n") == (True, 0, "Grüße\n")
    assert await out("/usr/bin/python3.12", "-u", "-", input="print(1)") == (True, 0, "1\n")
    assert (await out("python", "-c", "import sys; sys.exit(3)"))[:2] == (False, 3)
    assert "SyntaxError" in (await out("python", "-c", "def f("))[2]
    assert "ZeroDivisionError" in (await out("python", "-c", "1/0"))[2]
    shown = "import os, sys; print(sys.argv[1:], os.environ['A'], os.getcwd())"
    told = {"env": {"A": "b'"}, "cwd": "below"}
    await sandbox.write_file("below/main.py", shown)
    await sandbox.write_file("/tmp/below/data.bin", b"\0")
    said = "['x', 'y z'] b' /tmp/below\n"
    assert await out("python", "-c", shown, "x", "y z", **told) == (True, 0, said)
    assert await out("python", "below/main.py", "x", "y z", **told) == (True, 0, said)
    reads = "print(open('below/data.bin', 'rb').read())"
    assert await out("python", "-c", reads) == (True, 0, "b'\\x00'\n")
    assert (await out("python", "-c", "open('/etc/passwd')"))[0] is False  # confined
    assert (await out("python", "-c", "import socket; socket.create_connection(('1.1.1.1', 80))"))[
        0
    ] is False
    await refuses(TimeoutError, sandbox.exec(["python", "-c", "while True: pass"], timeout=1))
    await refuses(TimeoutError, sandbox.exec(["python", "-c", "input()"], timeout=1), unless=True)
    for cmd in (["ls"], ["bash", "-c", "true"], ["python", "-m", "pytest"], []):
        await refuses(PermissionError, sandbox.exec(cmd))
    await refuses(SandboxUserUnsupportedError, sandbox.exec(["python", "-c", ""], user="root"))
    await refuses(PermissionError, sandbox.write_file("/etc/x", ""))
    await refuses(PermissionError, sandbox.write_file("../../x", ""))
    await refuses(IsADirectoryError, sandbox.read_file("below"))
    await refuses(IsADirectoryError, sandbox.write_file("below", ""))
    many = "import sys\nfor _ in range(300): sys.stdout.write('x' * 65536)"
    await refuses(OutputLimitExceededError, sandbox.exec(["python", "-c", many], timeout=60))


async def refuses(error: type[Exception], doing: Any, *, unless: bool = False) -> None:
    """Check that an awaitable raises this error; with `unless`, that it does not."""
    try:
        await doing
    except error:
        assert not unless, f"{error.__name__} was raised"
        return
    assert unless, f"no {error.__name__} was raised"


def the_page(data: Path) -> None:
    from tests import docs

    page = docs.ROOT / "docs" / "inspect.md"
    folder = Path("reader").absolute()
    folder.mkdir()
    shutil.copy(data, folder / HUMANEVAL)
    count = docs.execute(page, folder, "e2e", "soak", timeout_s=300)
    print(f"docs/inspect.md: {count} blocks executed")
    assert count


if __name__ == "__main__":
    main()
