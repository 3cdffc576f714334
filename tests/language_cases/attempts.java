import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.nio.file.attribute.*;
public class Attempts {
    interface Attempt { void make() throws Throwable; }
    static void attempt(String what, Attempt made) {
        try { made.make(); System.out.println(what); } catch (Throwable expected) { }
    }
    public static void main(String[] args) {
        attempt("processes", () -> new ProcessBuilder("/bin/true").start().waitFor());
        attempt("shells", () -> Runtime.getRuntime().exec(new String[] {"/bin/sh", "-c", "true"}));
        attempt("network", () -> new Socket("127.0.0.1", 9));
        attempt("listening", () -> new ServerSocket(0));
        attempt("datagrams", () -> new DatagramSocket());
        attempt("passwords", () -> Files.readAllLines(Path.of("/etc/passwd")));
        attempt("its sandbox", () -> Files.list(Path.of("SANDBOX")));
        attempt("writing", () -> Files.writeString(Path.of("/usr/lib/.written"), ""));
        attempt("attributes", () -> Files.setPosixFilePermissions(Path.of("/usr/lib"),
            PosixFilePermissions.fromString("rwxr-xr-x")));
        attempt("signals", () -> { if (!ProcessHandle.of(ProcessHandle.current().parent().get().pid())
            .get().destroy()) throw new IOException(); });
        if (ProcessHandle.current().pid() != 1)
            attempt("host processes", () -> Files.readAllBytes(Path.of("/proc/1/environ")));
        for (String name : System.getenv().keySet())
            if (name.contains("CANARY")) System.out.println(name);
    }
}
