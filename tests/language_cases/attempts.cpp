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
