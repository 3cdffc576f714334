"""`sandbox`: is it safe here, run one program, serve it over HTTP, how fast is it."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import (
    AsJson,
    FreePort,
    Host,
    MinTier,
    Preload,
    Python,
    Workers,
    cores,
    embedded_sandbox,
    existing_file,
)
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.extras import extra
from coding_model_project.isolation.confine import Tier

if TYPE_CHECKING:
    from coding_model_project.sandbox.base import Sandbox

app = typer.Typer(no_args_is_help=True, help="The sandbox that untrusted programs run in.")


@app.command()
def check(min_tier: MinTier = Tier.seccomp, python: Python = None, preload: Preload = None) -> int:
    """Say how programs are isolated here, what is missing for more, in which languages they may be,
    and test that it holds.

    Exit code 3 if no isolation of the least tier works, or the sandbox does not do what it must.
    """
    return asyncio.run(_check(min_tier, python or sys.executable, tuple(preload or ())))


async def _check(min_tier: Tier, python: str, preload: tuple[str, ...]) -> int:
    from coding_model_project.isolation.confine import Tier
    from coding_model_project.sandbox.conformance import check as find_faults
    from coding_model_project.sandbox.embedded import EmbeddedSandbox, compiled_loop
    from coding_model_project.sandbox.embedded.languages import toolchains
    from coding_model_project.sandbox.embedded.tiers import why_not

    made = EmbeddedSandbox(workers=1, min_tier=min_tier, python=python, preload=preload)
    async with made as sandbox:
        print(f"tier: {sandbox.tier} ({sandbox.identity})")
        for tier in Tier:
            if not sandbox.tier.at_least(tier):
                print(f"missing for {tier}: {why_not(tier, python, preload)}")
        print(f"tests are forked {compiled_loop.summary()}")
        print(f"languages: {toolchains.summary(sandbox.tier)}")
        spoken = toolchains.available(sandbox.tier)
        refused = [await _refusal(sandbox, language) for language in spoken]
        for reason in filter(None, refused):
            print(f"but {reason}")
        speaks = [one for one, reason in zip(spoken, refused, strict=True) if reason is None]
        faults = await find_faults(sandbox, speaks)
    for fault in faults:
        print(f"fault: {fault}")
    print(f"conformance: {f'{len(faults)} faults' if faults else 'passed'}")
    return SandboxError.exit_code if faults else 0


async def _refusal(sandbox: Sandbox, language: str) -> str | None:
    """Why programs in a language whose toolchain is there are refused all the same; None if they run."""
    from coding_model_project.types import Limits, Program, Stdin

    try:
        await sandbox.run(Program(source="", language=language), [Stdin("")], Limits())
    except ConfigError as error:
        return str(error)
    return None


EXTENSIONS = {
    ".py": "python",
    **dict.fromkeys((".cpp", ".cc", ".cxx"), "cpp"),
    **dict.fromkeys((".js", ".mjs"), "javascript"),
    ".java": "java",
    ".go": "go",
    ".rs": "rust",
    **dict.fromkeys((".sh", ".bash"), "bash"),
}
"""The language of a program's file."""
WAITS_S = 2.0
"""Seconds without the end of standard input after which the user is told what is waited for."""


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(help="A program: .py, .cpp, .js, .java, .go, .rs or .sh.")
    ],
    language: Annotated[
        str | None, typer.Option(help="Run it as this language, whatever its extension.")
    ] = None,
    stdin: Annotated[
        str | None,
        typer.Option(help="Give it this standard input; by default, what comes through a pipe."),
    ] = None,
    cpu_s: Annotated[float, typer.Option(help="Stop it after N CPU seconds.", min=0.01)] = 5.0,
    memory_mb: Annotated[int, typer.Option(help="Let it use N megabytes.", min=1)] = 512,
    min_tier: MinTier = Tier.seccomp,
    python: Python = None,
    preload: Preload = None,
) -> int:
    """Run one program: its output, then how it ended. Exit code 1 unless it finished.

    Standard input is passed on unless it is a terminal: echo 1 2 | … sandbox run a.py
    """
    from coding_model_project.types import Limits, Program, Status, Stdin

    source = existing_file(file, "FILE").read_text("utf-8", "replace")
    program = Program(source=source, language=_language(file, language))
    limits = Limits(cpu_s=cpu_s, wall_s=3 * cpu_s, memory_mb=memory_mb)
    sandbox = embedded_sandbox(1, min_tier, python=python, preload=preload)
    given = Stdin(_piped() if stdin is None else stdin)

    async def execute():
        async with sandbox:
            return await sandbox.run(program, [given], limits)

    (execution,) = asyncio.run(execute())
    print(execution.stdout, end="", flush=True)
    if execution.stderr_tail:
        print(execution.stderr_tail.rstrip(), file=sys.stderr)
    print(
        f"{execution.status}, exit code {execution.exit_code}, {execution.cpu_s:.3f} s CPU, "
        f"{execution.wall_s:.3f} s wall, {execution.peak_memory_mb or 0:.0f} MB",
        file=sys.stderr,
    )
    return 0 if execution.status is Status.finished else 1


def _language(file: Path, given: str | None) -> str:
    """The language to run a file as.

    Raises:
        ConfigError: neither the option nor the extension names one.
    """
    from coding_model_project.sandbox.embedded.languages import toolchains

    if given is None and file.suffix.lower() in EXTENSIONS:
        return EXTENSIONS[file.suffix.lower()]
    if given is None:
        known = ", ".join(EXTENSIONS)
        raise ConfigError(
            f"{file}: the extension {file.suffix!r} names no language; there are {known}, or pass "
            "--language"
        )
    return given if given == "python" else toolchains.named(given)


def _piped() -> str:
    """The standard input of this command; empty if it is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    note = "reading standard input until its end; --stdin '' runs the program without"
    waiting = threading.Timer(WAITS_S, print, [note], {"file": sys.stderr})
    waiting.daemon = True
    waiting.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    finally:
        waiting.cancel()


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: FreePort = 8080,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CODING_SANDBOX_TOKEN",
            help="Require this bearer token; needed unless only this machine can connect.",
        ),
    ] = None,
    max_waiting: Annotated[
        int, typer.Option(help="Let N requests wait; more are answered 429.", min=0)
    ] = 512,
    max_request_mb: Annotated[int, typer.Option(help="Refuse requests above N MiB.", min=1)] = 64,
    memory_mb: Annotated[int, typer.Option(help="Let a program use at most N MiB.", min=16)] = 4096,
    output_mb: Annotated[int, typer.Option(help="Let a program print at most N MiB.", min=1)] = 16,
    drain_s: Annotated[
        float,
        typer.Option(help="After SIGTERM, finish what was accepted for at most N seconds.", min=0),
    ] = 60.0,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
) -> int:
    """Serve SandboxFusion's HTTP API from this machine's sandbox, until it is interrupted."""
    with extra("serve"):
        from coding_model_project.server import listening
        from coding_model_project.server.admission import Admission
        from coding_model_project.server.app import Settings, create_app
        from coding_model_project.server.run_code import Bounds

    listening.check_exposure(host, token)
    at_once = cores(workers)
    sandbox = embedded_sandbox(at_once, min_tier)
    settings = Settings(
        at_once=at_once,
        max_waiting=max_waiting,
        max_request_bytes=max_request_mb << 20,
        token=token,
        bounds=Bounds(memory_mb=memory_mb, output_kb=output_mb << 10),
    )
    sock = listening.listen(host, port)
    address = f"http://{host}:{sock.getsockname()[1]}"

    def started() -> None:
        print(f"serving on {address} ({sandbox.identity}, {at_once} programs at once)", flush=True)

    with sock:
        admission = Admission(settings.at_once, settings.max_waiting)
        served = create_app(sandbox, settings, admission)
        listening.serve(served, sandbox, sock, started, admission, drain_s)
    return 0


@app.command()
def bench(
    url: Annotated[
        str | None, typer.Option(help="Measure this SandboxFusion server beside it.")
    ] = None,
    as_json: AsJson = False,
    rounds: Annotated[int, typer.Option(help="Run N rounds; the median counts.", min=1)] = 5,
    workers: Workers = None,
) -> None:
    """Measure the sandbox's speed beside a plain process per test. The last line is JSON.

    Also with processes that tests share (shared), and with fewer workers (scaling). With --url also a
    server's, by this project's client (http: several programs per request) and as others use it
    (run_code: a request per test). Programs have 20 tests, or one for programs_per_s and p99_ms; of
    calls_per_s, 20 that are calls of a function.
    """
    from coding_model_project.sandbox.benchmark import measure

    measured = asyncio.run(measure(rounds=rounds, workers=workers, url=url))
    sides = {
        name: {key: value for key, value in asdict(side).items() if value is not None}
        for name in ("embedded", "shared", "subprocess", "http", "run_code")
        if (side := getattr(measured, name)) is not None
    }
    scaling = {str(n): round(rate, 2) for n, rate in measured.scaling.items()}
    ratios = {
        "a process per test": measured.embedded.tests_per_s / measured.subprocess.tests_per_s,
        "shared processes": measured.shared.tests_per_s / measured.subprocess.tests_per_s,
        "programs of one test": measured.embedded.programs_per_s
        / measured.subprocess.programs_per_s,
    }
    if not as_json:
        for name, figures in sides.items():
            print(f"{name}:", ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
        print("times subprocess:", ", ".join(f"{k} {v:.1f}" for k, v in ratios.items()))
        print("scaling:", ", ".join(f"{k} workers {v:.0f} tests/s" for k, v in scaling.items()))
    rounded = {
        name: {
            key: round(value, 2)
            for key, value in figures.items()
            if name in ("embedded", "shared", "http") or key in ("tests_per_s", "cpu_ms_per_test")
        }
        for name, figures in sides.items()
    }
    if "run_code" in rounded:
        rounded["http"]["run_code"] = rounded.pop("run_code")
    print(json.dumps({"tier": measured.identity.split("/")[1], **rounded, "scaling": scaling}))


@app.command()
def battery(
    file: Annotated[Path, typer.Argument(help="JSON lines of adversarial and honest programs.")],
    sandbox: Annotated[
        str,
        typer.Option(metavar="embedded|URL", help="Judge in this sandbox; several URLs by commas."),
    ] = "embedded",
    tier: Annotated[
        str | None, typer.Option(help="Isolate by exactly this tier of the embedded sandbox.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Judge a battery: a line per case that does not hold; the last line is JSON.

    Exit code 1 if any case does not hold.
    """
    from coding_model_project.grading.battery.battery_cases import read_cases
    from coding_model_project.grading.battery.run_cases import run_battery, summary
    from coding_model_project.progress import progress_bar

    cases = read_cases(existing_file(file, "FILE"))
    judged_in = _battery_sandbox(sandbox, tier)

    async def judge():
        with progress_bar("battery", len(cases)) as advance:
            return await run_battery(cases, judged_in, advance)

    outcomes, identity = asyncio.run(judge())
    failed = [outcome for outcome in outcomes if outcome.unmet]
    if not as_json:
        for outcome in failed:
            print(f"{outcome.case.id}: {'; '.join(outcome.unmet)}")
    print(json.dumps(summary(outcomes, tier=identity.split("/")[1])))
    return 1 if failed else 0


def _battery_sandbox(name: str, tier: str | None) -> Sandbox:
    if name == "embedded":
        from coding_model_project.sandbox.embedded import EmbeddedSandbox

        return EmbeddedSandbox(workers=1, min_tier=tier or "seccomp", tier=tier)
    if tier is not None:
        raise ConfigError("--tier: only the embedded sandbox can be told its tier")
    from coding_model_project.sandbox.fusion import FusionSandbox, discovery

    urls = name.split(",")
    if not all(url.startswith(discovery.PREFIXES) for url in urls):
        raise ConfigError(f'--sandbox={name}: neither "embedded" nor a URL')
    return FusionSandbox(urls)
