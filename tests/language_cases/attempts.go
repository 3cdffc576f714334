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
