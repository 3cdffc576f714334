"""Programs in JavaScript and Bash, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, Case, program

JS_ATTEMPTS = program("attempts.js")
JAVASCRIPT = (
    Case(
        "echo",
        "const [a, b] = require('fs').readFileSync('/dev/stdin', 'utf8').split(' ').map(Number);"
        "if (require.main === module) console.log(a + b)",
        stdout="3\n",
    ),
    Case(
        "lines",
        "require('readline').createInterface({input: process.stdin})"
        ".on('line', l => console.log(l.length))",
        stdout="3\n",
    ),
    Case("exit code", "process.exit(3)", Status.raised),
    Case("thrown", "throw new Error('mine')", Status.raised, said="mine"),
    Case("signal", "process.abort()", Status.signalled),
    Case("loop", "for (;;) ;", Status.cpu_timeout, limits=BRIEF),
    Case("memory", "const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))", Status.memory_limit),
    Case("heap", "const a = []; for (;;) a.push([a])", Status.memory_limit),
    Case("output", "for (;;) require('fs').writeSync(1, 'x')", Status.output_limit),
    Case("attempts", JS_ATTEMPTS, stdout="EPERM\n"),
    Case(
        "deep recursion",
        "const d = n => n ? 1 + d(n - 1) : 0; console.log(d(100000))",
        stdout="100000\n",
    ),
    Case(
        "syntax",
        "console.log('ran')\nlet = = 1",
        Status.syntax_error,
        stdout="",
        said="SyntaxError",
    ),
)
BASH_ATTEMPTS = program("attempts.sh")
BASH = (
    Case("echo", "read a b; echo $((a + b))", stdout="3\n"),
    Case(
        "tools",
        "sort -n < <(printf '3\\n1\\n') | awk '{s += $1} END {print s}'; cat <<< x > f; cat f",
        stdout="4\nx\n",
    ),
    Case("exit code", "exit 3", Status.raised),
    Case("loop", "while :; do :; done", Status.cpu_timeout, limits=BRIEF),
    Case(
        "loop of children",
        "while :; do echo | sort > /dev/null; done",
        Status.cpu_timeout,
        limits=BRIEF,
    ),
    Case("memory", "x=x; while :; do x=$x$x; done", Status.memory_limit),
    Case("output", "yes", Status.output_limit),
    Case(  # of a hundred: that a bomb is stopped at 400 is proven whenever the sandbox starts
        name="processes",
        source="for i in {1..100}; do sleep 5 & done; wait",
        status=Status.signalled,
    ),
    Case("left behind", "sleep 1000 & disown; (setsid sleep 1000 &)", stdout=""),
    Case("syntax", "echo ran\nif true; then", Status.syntax_error, stdout="", said="main.sh: line"),
)

PERL = (
    Case("echo", "my ($a, $b) = split ' ', <STDIN>; print $a + $b, qq(\\n)", stdout="3\n"),
    Case(
        "library",
        "use List::Util qw(sum max); use POSIX qw(floor); use Data::Dumper; "
        "print sum(1, 2) . max(4, 5) . floor(6.5)",
        stdout="356",
    ),
    Case("exit code", "exit 3", Status.raised),
    Case("died", "die 'mine'", Status.raised, said="mine at"),
    Case("loop", "1 while 1", Status.cpu_timeout, limits=BRIEF),
    Case("memory", "my @a; push @a, 'x' x 1000000 while 1", Status.memory_limit),
    Case("output", "print 'x' while 1", Status.output_limit),
    Case("attempts", program("attempts.pl"), stdout=""),
    Case("syntax", "print 'ran'; if (1) {", Status.syntax_error, stdout="", said="main.pl line"),
)
