"""Programs in Go, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, SANDBOX, WAITS, Case

GO_ATTEMPTS = """
package main
import ("fmt"; "net"; "os"; "os/exec"; "strings"; "syscall")
func attempt(what string, err error) { if err == nil { fmt.Println(what) } }
func main() {
    attempt("processes", exec.Command("/bin/true").Run())
    _, err := syscall.ForkExec("/bin/true", nil, nil)
    attempt("forks", err)
    attempt("exec", syscall.Exec("/bin/true", nil, nil))
    _, err = net.Dial("tcp", "127.0.0.1:9")
    attempt("network", err)
    _, err = net.Listen("tcp", "127.0.0.1:0")
    attempt("listening", err)
    _, err = os.ReadFile("/etc/passwd")
    attempt("passwords", err)
    _, err = os.ReadDir("SANDBOX")
    attempt("its sandbox", err)
    attempt("writing", os.WriteFile("/usr/lib/.written", nil, 0600))
    attempt("attributes", os.Chmod("/usr/lib", 0755))
    other := os.Getppid()
    if other == 0 { other = 2 }
    attempt("signals", syscall.Kill(other, 0))
    _, err = os.ReadFile("/proc/1/environ")
    if os.Getpid() != 1 { attempt("host processes", err) }
    for _, name := range os.Environ() { if strings.Contains(name, "CANARY") { fmt.Println(name) } }
}
"""


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
    Case("attempts", GO_ATTEMPTS.replace("SANDBOX", SANDBOX), stdout=""),
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
