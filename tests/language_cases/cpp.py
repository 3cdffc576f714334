"""Programs in C++, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, Case


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
