"""Programs in Go, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, WAITS, Case, program

GO_ATTEMPTS = program("attempts.go")


def go(body: str, *imports: str) -> str:
    listed = "".join(f'import "{name}"\n' for name in imports)
    return f"package main\n{listed}func main() {{ {body} }}"


GO_THREADS = """
var sum int64
var all sync.WaitGroup
for i := 0; i < 1000; i++ {
    all.Add(1)
    go func(n int) { defer all.Done(); atomic.AddInt64(&sum, int64(n)) }(i)
}
all.Wait()
fmt.Print(sum)
"""
GO = (
    Case("echo", go("var a, b int; fmt.Scan(&a, &b); fmt.Print(a + b)", "fmt"), stdout="3"),
    Case("exit code", go("os.Exit(3)", "os"), Status.raised),
    Case("panic", go('panic("mine")'), Status.raised, said="panic: mine"),
    Case("index", go("var a []int; i := 3; a[i] = 1"), Status.raised, said="index out of range"),
    Case("loop", go("for {}"), Status.cpu_timeout, limits=BRIEF),
    Case("sleep", go("time.Sleep(time.Hour)", "time"), Status.wall_timeout, limits=WAITS),
    Case("memory", go("var a []byte; for { a = append(a, 1) }"), Status.memory_limit),
    Case("output", go('for { println("x") }'), Status.output_limit),
    Case("attempts", GO_ATTEMPTS, stdout=""),
    Case("threads", go(GO_THREADS, "fmt", "sync", "sync/atomic"), stdout="499500"),
    Case(
        "deep recursion",
        'package main\nimport "fmt"\nfunc depth(n int) int { if n == 0 { return 0 }\n'
        "return 1 + depth(n - 1) }\nfunc main() { fmt.Print(depth(300000)) }",
        stdout="300000",
    ),
    Case("error", go("x := 1"), Status.compile_error, said="main.go:"),
    Case("no program", "package main", Status.compile_error, said="main"),
    Case(
        "a module",
        go("color.Red()", "github.com/fatih/color"),
        Status.compile_error,
        said="could not import",
    ),
    Case(
        "embedding of the host's",
        'package main\nimport _ "embed"\n//go:embed /etc/passwd\nvar all string\n'
        "func main() { print(all) }",
        Status.compile_error,
        said="embed",
    ),
    Case("C", go("C.puts(nil)", "C"), Status.compile_error),
)
