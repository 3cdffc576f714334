"""Programs in Rust, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, CANARY, SANDBOX, WAITS, Case, program

RUST_ATTEMPTS = program("attempts.rs")
RUST_THREADS = """
fn main() {
    let all: Vec<_> = (0..8).map(|n| std::thread::spawn(move || n)).collect();
    print!("{}", all.into_iter().map(|t| t.join().unwrap()).sum::<i32>());
}"""
RUST_DEEP = """
fn depth(n: u32) -> u32 { if std::hint::black_box(n) == 0 { 0 } else { 1 + depth(n - 1) } }
fn main() { print!("{}", depth(700000)); }
"""
RUST_ALLOCATOR = program("allocator.rs")
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
    Case("attempts", RUST_ATTEMPTS, stdout=""),
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
