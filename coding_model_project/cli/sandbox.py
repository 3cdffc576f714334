"""The `sandbox` command group: check isolation, run a program, serve over HTTP, measure speed."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.cli.options import cores, existing_file
from coding_model_project.config_key import argument, option
from coding_model_project.control_groups import free_memory
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.extras import extra
from coding_model_project.http import secret_of
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.languages import EXTENSIONS, named
from coding_model_project.types import Limits, Program, Status, Stdin

app = Commands(no_args_is_help=True, help="The sandbox that untrusted programs run in.")


@app.command()
async def check(confined: options.Confined) -> int:
    """Test this machine's isolation; print its tier, what stronger tiers lack, and the languages.

    Exit code 3 if no isolation of the minimum tier works, or the sandbox fails its conformance suite.
    """
    from coding_model_project.sandbox.conformance import check as find_faults
    from coding_model_project.sandbox.embedded import EmbeddedSandbox, slot
    from coding_model_project.sandbox.embedded.languages import toolchains
    from coding_model_project.sandbox.embedded.supervisor import why_not

    python, preload = confined.python or sys.executable, tuple(confined.preload)
    made = EmbeddedSandbox(workers=1, min_tier=confined.min_tier, python=python, preload=preload)
    async with made as sandbox:
        print(f"tier: {sandbox.tier} ({sandbox.identity})")
        for tier in Tier:
            if not sandbox.tier.at_least(tier):
                print(f"missing for {tier}: {why_not(tier, python, preload)}")
        print(f"tests are forked {slot.how_tests_fork()}")
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
    """Return why the sandbox refuses an installed language, or None if its programs run."""
    try:
        await sandbox.run(Program(source="", language=language), [Stdin("")], Limits())
    except ConfigError as error:
        return str(error)
    return None


WAITS_S = 2.0
"""Seconds of waiting for the end of standard input before a note is printed."""


@app.command()
async def run(
    file: Path = argument(..., "A program: .py, .c, .cpp, .js, .java, .go, .rs, .pl or .sh."),
    language: str | None = option(
        None, "Run the file as this language. Default: by its extension."
    ),
    stdin: str | None = option(None, "Pass this text as standard input. Default: the piped input."),
    cpu_s: float = option(5.0, "Kill the program after N CPU seconds.", min=0.01),
    memory_mb: int = option(512, "Limit the program to N MiB.", min=1),
    *,
    confined: options.Confined,
) -> int:
    """Run one program and print its output and how it ended. Exit code 1 unless it finished.

    Standard input is passed on unless it is a terminal: echo 1 2 | … sandbox run a.py
    """
    source = existing_file(file, "FILE").read_text("utf-8", "replace")
    program = Program(source=source, language=_language(file, language))
    limits = Limits(cpu_s=cpu_s, wall_s=3 * cpu_s, memory_mb=memory_mb)
    given = Stdin(_piped() if stdin is None else stdin)
    async with options.embedded_sandbox(replace(confined, workers=1)) as sandbox:
        (execution,) = await sandbox.run(program, [given], limits)
    print(execution.stdout, end="", flush=True)
    if execution.stderr_tail:
        options.warn(execution.stderr_tail.rstrip())
    options.warn(
        f"{execution.status}, exit code {execution.exit_code}, {execution.cpu_s:.3f} s CPU, "
        f"{execution.wall_s:.3f} s wall, {execution.peak_memory_mb or 0:.0f} MB"
    )
    return 0 if execution.status is Status.finished else 1


def _language(file: Path, given: str | None) -> str:
    """Return the language to run a file as.

    Raises:
        ConfigError: neither the option nor the extension names a language.
    """
    if given is None and file.suffix.lower() in EXTENSIONS:
        return EXTENSIONS[file.suffix.lower()]
    if given is None:
        known = ", ".join(EXTENSIONS)
        raise ConfigError(
            f"{file}: unknown extension {file.suffix!r}; expected one of {known}, or pass --language"
        )
    return given if given == "python" else named(given).name


def _piped() -> str:
    """Return this command's standard input, or an empty text if it is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    note = "reading standard input until its end; pass --stdin '' to run without input"
    waiting = threading.Timer(WAITS_S, print, [note], {"file": sys.stderr})
    waiting.daemon = True
    waiting.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    finally:
        waiting.cancel()


@app.command()
def serve(
    judging: options.Judging,
    host: str = option("127.0.0.1", options.HOST),
    port: int = option(8080, options.FREE_PORT),
    token: str | None = option(
        None,
        "Require this bearer token; mandatory unless only this machine can connect.",
        envvar="CODING_SANDBOX_TOKEN",
    ),
    max_waiting: int = option(512, "Queue up to N requests; answer more with 429.", min=0),
    max_request_mb: int = option(64, "Reject requests above N MiB.", min=1),
    memory_mb: int = option(4096, "Limit a program to N MiB.", min=16),
    output_mb: int = option(16, "Limit a program's output to N MiB.", min=1),
    drain_s: float = option(
        60.0, "After SIGTERM, finish accepted requests for at most N seconds.", min=0
    ),
) -> int:
    """Serve SandboxFusion's /run_code from this machine's sandbox until interrupted."""
    with extra("serve"):
        from coding_model_project.sandbox.fusion.client import TOKEN_VARIABLE
        from coding_model_project.server import listening
        from coding_model_project.server.app import LOOPBACK, Settings, create_app
        from coding_model_project.server.listening import Admission
        from coding_model_project.server.running import Bounds

    token = secret_of(TOKEN_VARIABLE, token or "")
    listening.check_exposure(host, token)
    at_once = cores(judging.workers)
    sandbox = options.embedded_sandbox(replace(judging, workers=at_once))
    settings = Settings(
        max_request_bytes=max_request_mb << 20,
        token=token,
        hosts=(host, *LOOPBACK),
        bounds=Bounds(memory_mb=memory_mb, output_kb=output_mb << 10),
    )
    sock = listening.listen(host, port)
    address = f"http://{host}:{sock.getsockname()[1]}"

    typical_mb = Limits().memory_mb
    if (left := free_memory() / 2**20) < at_once * typical_mb:
        options.warn(
            f"the container leaves {left:.0f} MiB of memory for {at_once} programs at once, fewer than "
            f"{typical_mb} MiB each: if it runs out, the kernel kills programs, and their requests "
            "fail; pass fewer --workers, or give it more"
        )

    def started() -> None:
        print(f"serving on {address} ({sandbox.identity}, {at_once} programs at once)", flush=True)

    with sock:
        admission = Admission(at_once, max_waiting)
        served = create_app(sandbox, admission, settings)
        listening.serve(served, sandbox, sock, started, admission, drain_s)
    return 0


@app.command()
async def bench(
    url: str | None = option(None, "Also measure this SandboxFusion server."),
    as_json: bool = option(False, options.AS_JSON),
    rounds: int = option(5, "Run N rounds and report medians.", min=1),
    workers: int | None = option(None, options.WORKERS),
) -> None:
    """Measure the sandbox's speed against a plain process per test. The last line is JSON.

    Also measures fewer workers (scaling). With --url, also measures a server with this project's client
    (http: several programs per request) and as other clients use it (run_code: one request per test).
    Programs have 20 tests, or one for programs_per_s and p99_ms; for calls_per_s the 20 tests are
    function calls.
    """
    from coding_model_project.sandbox.benchmark import measure

    measured = await measure(rounds=rounds, workers=workers, url=url)
    sides = {
        name: {key: value for key, value in asdict(side).items() if value is not None}
        for name in ("embedded", "subprocess", "http", "run_code")
        if (side := getattr(measured, name)) is not None
    }
    scaling = {str(n): round(rate, 2) for n, rate in measured.scaling.items()}
    ours, plain = measured.embedded, measured.subprocess
    if not as_json:
        for name, figures in sides.items():
            print(f"{name}:", ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
        print(
            f"times subprocess: a process per test {ours.tests_per_s / plain.tests_per_s:.1f}, "
            f"programs of one test {ours.programs_per_s / plain.programs_per_s:.1f}"
        )
        print("scaling:", ", ".join(f"{k} workers {v:.0f} tests/s" for k, v in scaling.items()))
    rounded = {
        name: {
            key: round(value, 2)
            for key, value in figures.items()
            if name in ("embedded", "http") or key in ("tests_per_s", "cpu_ms_per_test")
        }
        for name, figures in sides.items()
    }
    if "run_code" in rounded:
        rounded["http"]["run_code"] = rounded.pop("run_code")
    print(json.dumps({"tier": measured.identity.split("/")[1], **rounded, "scaling": scaling}))


@app.command()
async def battery(
    file: Path = argument(..., "JSON lines of adversarial and honest programs."),
    sandbox: str = option(
        "embedded", "Judge in this sandbox; accepts comma-separated URLs.", metavar="embedded|URL"
    ),
    tier: str | None = option(None, "Use exactly this isolation tier of the embedded sandbox."),
    as_json: bool = option(False, options.AS_JSON),
) -> int:
    """Judge a battery of programs: print a line per failed case; the last line is JSON.

    Exit code 1 if any case fails.
    """
    from coding_model_project.grading.battery.battery_cases import read_cases
    from coding_model_project.grading.battery.run_cases import run_battery, summary

    cases = read_cases(existing_file(file, "FILE"))
    judged_in = _battery_sandbox(sandbox, tier)
    with progress_bar("battery", len(cases)) as advance:
        outcomes, identity = await run_battery(cases, judged_in, advance)
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
        raise ConfigError("--tier: only available with --sandbox=embedded")
    from coding_model_project.sandbox.fusion import FusionSandbox, members

    urls = name.split(",")
    if not all(url.startswith(members.PREFIXES) for url in urls):
        raise ConfigError(f'--sandbox={name}: expected "embedded" or a URL')
    return FusionSandbox(urls)
