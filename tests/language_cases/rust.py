"""Programs in Rust, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, CANARY, SANDBOX, WAITS, Case

RUST_ATTEMPTS = """
use std::{env, fs, net, process};
use std::os::unix::{fs::PermissionsExt, net::UnixDatagram};
extern "C" {
    fn fork() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn getppid() -> i32;
    fn execv(path: *const u8, arguments: *const *const u8) -> i32;
    fn memfd_create(name: *const u8, flags: u32) -> i32;
    fn fchmod(file: i32, mode: u32) -> i32;
}
fn attempt(what: &str, made: bool) { if made { println!("{what}"); } }
fn main() {
    attempt("processes", process::Command::new("/bin/true").status().is_ok());
    unsafe {
        let child = fork();
        if child == 0 { println!("a child"); return; }
        attempt("fork", child > 0);
        attempt("exec", execv(b"/bin/true\\0".as_ptr(), [std::ptr::null()].as_ptr()) == 0);
        attempt("signals", kill(if getppid() == 0 { 2 } else { getppid() }, 0) == 0);
        attempt("files in memory", memfd_create(b"x\\0".as_ptr(), 0) >= 0);
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        use std::os::fd::AsRawFd;
        let before = mode("/usr/lib");
        fchmod(fs::File::open("/usr/lib").unwrap().as_raw_fd(), before ^ 1);
        attempt("attributes of an open file", mode("/usr/lib") != before);
    }
    attempt("network", net::TcpStream::connect("127.0.0.1:9").is_ok());
    attempt("listening", net::TcpListener::bind("127.0.0.1:0").is_ok());
    attempt("sockets", UnixDatagram::unbound().is_ok());
    attempt("passwords", fs::read("/etc/passwd").is_ok());
    attempt("its sandbox", fs::read_dir("SANDBOX").is_ok());
    attempt("writing", fs::write("/usr/lib/.written", "").is_ok());
    attempt("attributes", fs::set_permissions("/usr/lib", fs::Permissions::from_mode(0o755)).is_ok());
    attempt("host processes", fs::read("/proc/1/environ").is_ok());
    for (name, _) in env::vars() { attempt(&name, name.contains("CANARY")); }
}
"""
RUST_THREADS = """
fn main() {
    let all: Vec<_> = (0..8).map(|n| std::thread::spawn(move || n)).collect();
    print!("{}", all.into_iter().map(|t| t.join().unwrap()).sum::<i32>());
}"""
RUST_DEEP = """
fn depth(n: u32) -> u32 { if std::hint::black_box(n) == 0 { 0 } else { 1 + depth(n - 1) } }
fn main() { print!("{}", depth(700000)); }
"""
RUST_ALLOCATOR = """
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
struct Mine;
static USED: AtomicBool = AtomicBool::new(false);
unsafe impl GlobalAlloc for Mine {
    unsafe fn alloc(&self, wanted: Layout) -> *mut u8 { USED.store(true, SeqCst); System.alloc(wanted) }
    unsafe fn dealloc(&self, at: *mut u8, had: Layout) { System.dealloc(at, had) }
}
#[global_allocator]
static ALLOCATOR: Mine = Mine;
fn main() { print!("{:?} {}", vec![1, 2], USED.load(SeqCst)); }
"""
RUST_ECHO = """
fn main() {
    let given = std::io::read_to_string(std::io::stdin()).unwrap();
    print!("{}", given.split(' ').map(|word| word.parse::<i32>().unwrap()).sum::<i32>());
}"""
RUST_READS = 'fn main() {{ print!("{{}}", {}!("{}").len()) }}'
RUST = (
    Case("echo", RUST_ECHO, stdout="3"),
    Case("exit code", "fn main() { std::process::exit(3) }", Status.raised),
    Case("panic", 'fn main() { panic!("mine") }', Status.raised, said="mine"),
    Case("abort", "fn main() { std::process::abort() }", Status.signalled),
    Case("loop", "fn main() { loop {} }", Status.cpu_timeout, limits=BRIEF),
    Case(
        "sleep",
        "fn main() { std::thread::sleep(std::time::Duration::from_secs(60)) }",
        Status.wall_timeout,
        limits=WAITS,
    ),
    Case(
        "memory",
        "fn main() { let mut v = vec![1u8]; loop { v.extend_from_within(..); } }",
        Status.memory_limit,
    ),
    Case("output", 'fn main() { loop { println!("x") } }', Status.output_limit),
    Case("attempts", RUST_ATTEMPTS.replace("SANDBOX", SANDBOX), stdout=""),
    Case("threads", RUST_THREADS, stdout="28"),
    Case("deep recursion", RUST_DEEP, stdout="700000"),
    Case("an allocator", RUST_ALLOCATOR, stdout="[1, 2] true"),
    Case("error", "fn main( {", Status.compile_error, said="main.rs:1:"),
    Case("no program", "", Status.compile_error, said="main"),
    Case("a crate", "use rand::Rng;\nfn main() {}", Status.compile_error, said="rand"),
    Case(
        "include of the host's",
        RUST_READS.format("include_str", "/etc/passwd"),
        Status.compile_error,
        said="/etc/passwd",
    ),
    Case(
        "include of the sandbox's",
        RUST_READS.format("include_bytes", f"{SANDBOX}/launch.py"),
        Status.compile_error,
        said="launch.py",
    ),
    Case(
        "variables of the host's",
        f'fn main() {{ print!("{{}}", env!("{CANARY}")) }}',
        Status.compile_error,
        said="not defined",
    ),
    Case(
        "a huge file",
        'static A: [u8; 1 << 40] = [1; 1 << 40];\nfn main() { print!("{}", A[1]) }',
        Status.compile_error,
    ),
)
