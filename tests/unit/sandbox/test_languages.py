"""Programs in other languages: confined as Python's are, and ended for the same reasons."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace

import psutil
import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import EmbeddedSandbox, tiers
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.sandbox.embedded.languages.binaries import Binaries
from coding_model_project.types import Call, Execution, Files, Limits, Program, Status, Stdin

LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=128, output_kb=64)
BRIEF = replace(LIMITS, cpu_s=0.4)
CANARY = "CODING_TEST_CANARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    source: str
    status: Status = Status.finished
    stdout: str | None = None
    said: str = ""
    limits: Limits = LIMITS

    def problem(self, execution: Execution) -> str | None:
        right = (
            execution.status is self.status
            and self.stdout in (None, execution.stdout)
            and self.said in execution.stderr_tail
        )
        return None if right else f"{self.name}: {execution}"


def main(body: str) -> str:
    return f"#include <bits/stdc++.h>\nusing namespace std;\nint main() {{ {body} }}"


ATTEMPTS = """
#include <bits/stdc++.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
char *none[] = {(char *)"sh", nullptr};
void allowed(const char *what, bool is) { if (is) puts(what); }
int main() {
    int child = fork();
    if (child == 0) { puts("a child"); return 0; }
    allowed("fork", child > 0);
    allowed("vfork", syscall(SYS_vfork) >= 0);
    allowed("exec", execve("/bin/sh", none, environ) == 0);
    int tool = open("/usr/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY);
    for (int fd : {tool, 255}) {
        allowed("another number", fd == 255 && dup2(tool, 255) == 255);
        allowed("exec by descriptor", syscall(SYS_execveat, fd, "", none, environ, 0x1000) == 0);
    }
    allowed("network", socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_DGRAM, 0) >= 0);
    allowed("passwords", open("/etc/passwd", O_RDONLY) >= 0 || open("/etc/shadow", O_RDONLY) >= 0);
    allowed("writing", open("/usr/lib/.written", O_CREAT | O_WRONLY, 0600) >= 0);
    allowed("attributes", chmod("/usr/lib", 0755) == 0);
    allowed("signals", kill(getppid() ? getppid() : 2, 0) == 0);
    allowed("tracing", ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    allowed("host processes", open("/proc/1/environ", O_RDONLY) >= 0);
    allowed("files in memory", syscall(SYS_memfd_create, "x", 0) >= 0);
    for (char **e = environ; *e; e++) allowed(*e, strstr(*e, "CANARY"));
}
"""
THREADS = """
int sum = 0; mutex m; vector<thread> all;
for (int i = 0; i < 8; i++) all.emplace_back([&, i] { lock_guard<mutex> l(m); sum += i; });
for (auto &t : all) t.join();
cout << sum;
"""
DEEP = """
#include <cstdio>
int depth(int n) { volatile char pad[64]; pad[0] = 1; return n ? pad[0] + depth(n - 1) : 0; }
int main() { printf("%d", depth(700000)); }
"""
COMPILER_READS = '{} "{}"\nint main() {{}}'
TEMPLATES = """
template <int A, int B> struct F { static const long v = F<A - 1, B>::v + F<A, B - 1>::v; };
template <int B> struct F<0, B> { static const long v = 1; };
template <int A> struct F<A, 0> { static const long v = 1; };
int main() { return F<880, 880>::v; }
"""

CPP = (
    Case(name="echo", source=main("int a, b; cin >> a >> b; cout << a + b;"), stdout="3"),
    Case(name="exit code", source=main("return 3;"), status=Status.raised),
    Case(name="segfault", source=main("*(volatile int *)0 = 1;"), status=Status.signalled),
    Case(name="abort", source=main("assert(false);"), status=Status.signalled, said="Assertion"),
    Case(name="loop", source=main("for (;;) ;"), status=Status.cpu_timeout, limits=BRIEF),
    Case(
        name="memory",
        source=main("for (vector<int> v;;) v.resize(v.size() + (1 << 20));"),
        status=Status.memory_limit,
    ),
    Case(name="output", source=main('for (;;) puts("x");'), status=Status.output_limit),
    Case(name="attempts", source=ATTEMPTS, stdout=""),
    Case(name="threads", source=main(THREADS), stdout="28"),
    Case(name="deep recursion", source=DEEP, stdout="700000"),
    Case(name="error", source="int main( {", status=Status.compile_error, said="main.cpp:1:"),
    Case(name="no program", source="", status=Status.compile_error, said="main"),
    Case(
        name="include of the host's",
        source=COMPILER_READS.format("#include", "/etc/passwd"),
        status=Status.compile_error,
        said="/etc/passwd: ",
    ),
    Case(
        name="incbin of the host's",
        source='asm(".incbin \\"/etc/passwd\\"");\nint main() {}',
        status=Status.compile_error,
        said="/etc/passwd",
    ),
    Case(name="templates", source=TEMPLATES, status=Status.compile_error),
    Case(
        name="a huge file",
        source="int a[1 << 28] = {1};\nint main() {}",
        status=Status.compile_error,
    ),
)

JS_ATTEMPTS = """
const fs = require('fs'), net = require('net'), cp = require('child_process');
const attempt = (what, f) => {
    try { const r = f(); if (r && r.error) throw r.error; console.log(what); } catch {}
};
attempt('processes', () => cp.spawnSync('/bin/sh', ['-c', 'true']));
attempt('passwords', () => fs.readFileSync('/etc/passwd'));
attempt('writing', () => fs.writeFileSync('/usr/lib/.written', ''));
attempt('attributes', () => fs.chmodSync('/usr/lib', 0o755));
attempt('signals', () => process.kill(process.ppid || 2, 0));
const others = () => fs.readdirSync('/proc').filter(name => /^[0-9]+$/.test(name) && name != process.pid);
attempt('host processes', () => { if (!others().length) throw 0; });
for (const name in process.env) if (name.includes('CANARY')) console.log(name);
net.connect(9, '127.0.0.1').on('error', e => console.log(e.code));
"""
JAVASCRIPT = (
    Case(
        name="echo",
        source="const [a, b] = require('fs').readFileSync('/dev/stdin', 'utf8').split(' ').map(Number);"
        "if (require.main === module) console.log(a + b)",
        stdout="3\n",
    ),
    Case(
        name="lines",
        source="require('readline').createInterface({input: process.stdin})"
        ".on('line', l => console.log(l.length))",
        stdout="3\n",
    ),
    Case(name="exit code", source="process.exit(3)", status=Status.raised),
    Case(name="thrown", source="throw new Error('mine')", status=Status.raised, said="mine"),
    Case(name="signal", source="process.abort()", status=Status.signalled),
    Case(name="loop", source="for (;;) ;", status=Status.cpu_timeout, limits=BRIEF),
    Case(
        name="memory",
        source="const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))",
        status=Status.memory_limit,
    ),
    Case(name="heap", source="const a = []; for (;;) a.push([a])", status=Status.memory_limit),
    Case(
        name="output", source="for (;;) require('fs').writeSync(1, 'x')", status=Status.output_limit
    ),
    Case(name="attempts", source=JS_ATTEMPTS, stdout="EPERM\n"),
    Case(
        name="deep recursion",
        source="const d = n => n ? 1 + d(n - 1) : 0; console.log(d(100000))",
        stdout="100000\n",
    ),
    Case(
        name="syntax",
        source="console.log('ran')\nlet = = 1",
        status=Status.syntax_error,
        stdout="",
        said="SyntaxError",
    ),
)

BASH_ATTEMPTS = """
exec 2> /dev/null
(: > /dev/tcp/127.0.0.1/9) && echo network
(: > /usr/lib/.written) && echo writing
chmod 755 /usr/lib && echo attributes
kill -0 2 && echo signals
cat /etc/passwd /etc/shadow /proc/sys/kernel/hostname /proc/kallsyms
for folder in /proc/[0-9]*; do [[ $(< $folder/comm) =~ ^(bash|main.sh)$ ]] || cat $folder/comm; done
for name in python3 perl mount unshare nc curl gcc; do command -v $name; done
(ulimit -v unlimited) && echo limits
env | grep CANARY
true
"""
BASH = (
    Case(name="echo", source="read a b; echo $((a + b))", stdout="3\n"),
    Case(
        name="tools",
        source="sort -n < <(printf '3\\n1\\n') | awk '{s += $1} END {print s}'; cat <<< x > f; cat f",
        stdout="4\nx\n",
    ),
    Case(name="exit code", source="exit 3", status=Status.raised),
    Case(name="loop", source="while :; do :; done", status=Status.cpu_timeout, limits=BRIEF),
    Case(
        name="loop of children",
        source="while :; do echo | sort > /dev/null; done",
        status=Status.cpu_timeout,
        limits=BRIEF,
    ),
    Case(
        name="memory",
        source="x=x; while :; do x=$x$x; done",
        status=Status.memory_limit,
    ),
    Case(name="output", source="yes", status=Status.output_limit),
    Case(  # of a hundred: that a bomb is stopped at 400 is proven whenever the sandbox starts
        name="processes",
        source="for i in {1..100}; do sleep 5 & done; wait",
        status=Status.signalled,
    ),
    Case(name="left behind", source="sleep 1000 & disown; (setsid sleep 1000 &)", stdout=""),
    Case(
        name="syntax",
        source="echo ran\nif true; then",
        status=Status.syntax_error,
        stdout="",
        said="main.sh: line",
    ),
)
CASES = {"cpp": CPP, "javascript": JAVASCRIPT, "bash": BASH}


@pytest.fixture(params=[Tier.namespaces, Tier.seccomp])
async def sandbox(request, monkeypatch):
    if problem := tiers.why_not(request.param, sys.executable):
        pytest.skip(f"tier {request.param} does not work here: {problem}")
    monkeypatch.setenv(CANARY, "secret")
    async with EmbeddedSandbox(workers=2, tier=request.param) as sandbox:
        yield sandbox


def needs(name: str, tier: Tier) -> None:
    if problem := toolchains.why_not(toolchains.named(name), tier):
        pytest.skip(f"{name}: {problem}")


@pytest.mark.sandbox
@pytest.mark.parametrize("name", CASES)
async def test_every_case_ends_as_it_must(sandbox, name):
    needs(name, sandbox.tier)

    async def problem(case: Case) -> str | None:
        program = Program(source=case.source, language=name)
        (execution,) = await sandbox.run(program, [Stdin("1 2")], case.limits)
        return case.problem(execution)

    problems = await asyncio.gather(*map(problem, CASES[name]))
    assert "\n".join(problem for problem in problems if problem) == ""


@pytest.mark.sandbox
async def test_a_bash_program_gets_nothing_of_the_host(sandbox):
    needs("bash", sandbox.tier)
    program = Program(source=BASH_ATTEMPTS, language="bash")
    (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
    assert (execution.status, execution.stdout) == (Status.finished, "")


@pytest.mark.sandbox
async def test_nothing_is_left_behind(sandbox, monkeypatch, tmp_path):
    """Of a compilation, or of a shell's children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("cpp", "bash"):
        if toolchains.why_not(toolchains.named(name), sandbox.tier) is None:
            source = f"{CASES[name][-2].source}\n# {time.time()}"
            await sandbox.run(Program(source=source, language=name), [Stdin("")] * 3, LIMITS)
    sleeping = [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000"]
    ]
    assert sleeping == []
    assert list(tmp_path.glob("coding-stages-*/*")) == []


@pytest.mark.sandbox
async def test_a_checker_in_cpp(sandbox):
    needs("cpp", sandbox.tier)
    source = """
#include <fstream>
int main(int, char **names) {
    std::string read;
    for (std::string word; *++names; read += word) std::ifstream(*names) >> word;
    return read == "abc" ? 7 : 1;
}"""
    files = Files(contents={"input": "a", "output": "b", "answer": "c"})
    (execution,) = await sandbox.run(Program(source=source, language="c++"), [files], LIMITS)
    assert execution.exit_code == 7


@pytest.mark.sandbox
async def test_what_is_not_run_is_refused_with_the_way_out():
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier="rlimit") as sandbox:
        with pytest.raises(ConfigError, match=r"bash programs .* tier rlimit .*SandboxFusion"):
            await sandbox.run(Program(source="", language="bash"), [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match="not 'cobol'; a SandboxFusion"):
            await sandbox.run(Program(source="", language="cobol"), [Stdin("")], LIMITS)
        needs("cpp", sandbox.tier)
        with pytest.raises(DataError, match="Call inputs are for python"):
            await sandbox.run(Program(source="", language="cpp"), [Call(function="f")], LIMITS)


def test_binaries_are_whole_or_not_there_and_bounded(tmp_path):
    binaries = Binaries(tmp_path, max_bytes=3_000)
    for n in range(4):
        binaries.put(str(n), bytes([n]) * 900)
        os.utime(tmp_path / str(n), (n, n))
    assert [binaries.get(str(n)) is not None for n in range(4)] == [False, True, True, True]
    (tmp_path / "3").write_bytes((tmp_path / "3").read_bytes()[:-1])
    assert binaries.get("3") is None
    Binaries(tmp_path / "1" / "no folder").put("x", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
