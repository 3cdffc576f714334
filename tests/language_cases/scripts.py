"""Programs in JavaScript and Bash, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, Case

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
