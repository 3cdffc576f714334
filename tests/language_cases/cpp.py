"""Programs in C++, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, Case, program


def main(body: str) -> str:
    return f"#include <bits/stdc++.h>\nusing namespace std;\nint main() {{ {body} }}"


ATTEMPTS = program("attempts.cpp")
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
    Case("echo", main("int a, b; cin >> a >> b; cout << a + b;"), stdout="3"),
    Case("exit code", main("return 3;"), Status.raised),
    Case("segfault", main("*(volatile int *)0 = 1;"), Status.signalled),
    Case("abort", main("assert(false);"), Status.signalled, said="Assertion"),
    Case("loop", main("for (;;) ;"), Status.cpu_timeout, limits=BRIEF),
    Case(
        "memory", main("for (vector<int> v;;) v.resize(v.size() + (1 << 20));"), Status.memory_limit
    ),
    Case("output", main('for (;;) puts("x");'), Status.output_limit),
    Case("attempts", ATTEMPTS, stdout=""),
    Case("threads", main(THREADS), stdout="28"),
    Case("deep recursion", DEEP, stdout="700000"),
    Case("error", "int main( {", Status.compile_error, said="main.cpp:1:"),
    Case("no program", "", Status.compile_error, said="main"),
    Case(
        "include of the host's",
        COMPILER_READS.format("#include", "/etc/passwd"),
        Status.compile_error,
        said="/etc/passwd: ",
    ),
    Case(
        "incbin of the host's",
        'asm(".incbin \\"/etc/passwd\\"");\nint main() {}',
        Status.compile_error,
        said="/etc/passwd",
    ),
    Case("templates", TEMPLATES, Status.compile_error),
    Case("a huge file", "int a[1 << 28] = {1};\nint main() {}", Status.compile_error),
)

C = (
    Case(
        "mathematics",
        "#include <math.h>\n#include <stdio.h>\n"
        'int main(void) { double a; scanf("%lf", &a); printf("%.3f", sqrt(a + 1) + pow(a, a)); }',
        stdout="2.414",
    ),
    Case(
        "C, not C++", "int main(void) { int class = 3, *new = &class; return *new; }", Status.raised
    ),
    Case("abort", "#include <stdlib.h>\nint main(void) { abort(); }", Status.signalled),
    Case(
        "loop",
        "int main(void) { for (volatile int n = 0;; n++) ; }",
        Status.cpu_timeout,
        limits=BRIEF,
    ),
    Case("error", "int main( {", Status.compile_error, said="main.c:1:"),
    Case(
        "include of the host's",
        COMPILER_READS.format("#include", "/etc/passwd"),
        Status.compile_error,
        said="/etc/passwd: ",
    ),
)
