"""Programs in Java, honest and not."""

from __future__ import annotations

from coding_model_project.types import Status
from tests.language_cases.case import BRIEF, WAITS, Case, program

JAVA_ATTEMPTS = program("attempts.java")


def java(body: str, before: str = "") -> str:
    return (
        f"import java.util.*;\n{before}\npublic class Main {{ public static void main(String[] args) "
        f"throws Exception {{ {body} }} }}"
    )


JAVA_DEEP = """
class Main {
    static int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1); }
    public static void main(String[] args) { System.out.print(depth(700000)); }
}"""
JAVA_THREADS = """
var sum = new java.util.concurrent.atomic.AtomicInteger();
var all = new ArrayList<Thread>();
for (int i = 0; i < 8; i++) { int n = i; all.add(new Thread(() -> sum.addAndGet(n))); }
for (var t : all) t.start();
for (var t : all) t.join();
System.out.print(sum);
"""
JAVA_GARBAGE = """
long sum = 0;
for (int i = 0; i < 4000; i++) { byte[] some = new byte[1 << 20]; some[i] = 1; sum += some[i]; }
System.out.print(sum);
"""
JAVA = (
    Case(
        "echo",
        java("var in = new Scanner(System.in); System.out.print(in.nextInt() + in.nextInt());"),
        stdout="3",
    ),
    Case(
        "another name",
        'import java.io.*;\nclass Helper { static String word = "public class X {"; }\n'
        "/* public class Y { */ public final class Adder { public static void main(String... args) "
        "throws IOException { System.out.print(new BufferedReader(new InputStreamReader(System.in))"
        ".readLine()); } }",
        stdout="1 2",
    ),
    Case(
        "a package",
        "package a.b;\ninterface Named {}\nclass Main { record Pair(int a, int b) {}"
        ' public static void main(String[] args) { System.out.print(new Pair(1, 2) + "ż"); } }',
        stdout="Pair[a=1, b=2]ż",
    ),
    Case("exit code", java("System.exit(3);"), Status.raised),
    Case(
        "thrown",
        java('throw new IllegalStateException("mine");'),
        Status.raised,
        said="IllegalStateException: mine",
    ),
    Case(
        "runaway recursion",
        "class Main { static int f(int n) { return 1 + f(n + 1); }\n"
        "public static void main(String[] args) { f(0); } }",
        Status.raised,
        said="StackOverflowError",
    ),
    Case("no main", "class Main {}", Status.raised, said="Main"),
    Case("loop", java("for (;;) ;"), Status.cpu_timeout, limits=BRIEF),
    Case("sleep", java("Thread.sleep(60000);"), Status.wall_timeout, limits=WAITS),
    Case(
        "memory",
        java("var all = new ArrayList<int[]>(); for (;;) all.add(new int[1 << 20]);"),
        Status.memory_limit,
    ),
    Case(
        "memory outside of the heap",
        java(
            "var all = new ArrayList<Object>(); for (;;) {"
            "var some = java.nio.ByteBuffer.allocateDirect(1 << 20);"
            "while (some.hasRemaining()) some.put((byte) 1); all.add(some); }"
        ),
        Status.memory_limit,
    ),
    Case("garbage", java(JAVA_GARBAGE), stdout="4000"),
    Case("output", java('for (;;) System.out.println("x");'), Status.output_limit),
    Case("attempts", JAVA_ATTEMPTS, stdout=""),
    Case("threads", java(JAVA_THREADS), stdout="28"),
    Case("deep recursion", JAVA_DEEP, stdout="700000"),
    Case("error", "class {", Status.compile_error, said="Main.java:1:"),
    Case("null", "class Main {}\0", Status.compile_error, said="illegal char"),
    Case(
        "a huge constant pool",
        "class Main { static String s = "
        + " + ".join(f'"{n}" + System.nanoTime()' for n in range(30000))
        + "; }",
        Status.compile_error,
    ),
)
