/* The loop of a process that forks one confined process per test: the common case of `one_test` and `zygote`.

   A forked process shares its parent's memory until one of them touches it, and each touched page is a
   fault (2 us). Python touches about 250 pages to start, watch and report one test; this touches ten.
   It is optional: without a C compiler, `one_test` does the same in Python (`fork_server`).

   It takes only frames (`frames`) from the channel whose head is exactly

       {}                        standard input: the body
       {"function": "NAME"}      the body is the call's arguments
       {"single": SIZE}          a program of SIZE bytes, followed by its only test's standard input
       {"single": SIZE, "function": "NAME"}

   and leaves all others unread. Descriptors of a test: FIRST_KEPT + 0 input, 1 output, 2 errors, 3 answer,
   4 the source of a single. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* both numbers are the same on x86_64 and aarch64 */
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Functions of the interpreter that loads this. They are missing in a shell that starts the interpreter. */
#define OF_PYTHON __attribute__((weak))
extern OF_PYTHON void PyOS_BeforeFork(void);
extern OF_PYTHON void PyOS_AfterFork_Parent(void);
extern OF_PYTHON void PyOS_AfterFork_Child(void);
extern OF_PYTHON void *PyObject_CallNoArgs(void *);
extern OF_PYTHON void PyErr_Clear(void);
extern OF_PYTHON void Py_DecRef(void *);
extern OF_PYTHON int Py_IsInitialized(void);
struct arenas { void *context, *(*take)(void *, size_t); void (*give_back)(void *, void *, size_t); };
extern OF_PYTHON void PyObject_SetArenaAllocator(struct arenas *); /* its PyObjectArenaAllocator */

enum { UNHANDLED = 0, SCRIPT = 1, CALL = 2, ASTRAY = 3 }; /* `fork_server_serve` returns these or -errno */
enum { FORKED = 0, CONFINED = 1, REFUSED = 2 }; /* states of a test's process */
enum { IN, OUT, ERR, ANSWER, SOURCE, N_DESCRIPTORS };
enum { HEAD_MAX = 512, TAIL = 2000, CHUNK = 1 << 16 };

#define WATCH_S 0.05       /* interval at which threads are counted */
#define SHORTEST_S 0.002   /* interval of CPU clock checks near the limit */
#define COMPILE_WALL_S 60.0
#define MOST_WAITS 4       /* as `proc_files.MOST_WAITS` */

struct step { int64_t number, arguments[6]; };

struct plan {
  int32_t channel, proc, first_kept, single;
  int64_t clone_flags, output_bytes, max_threads, n_steps, n_own_pid, n_reseed, n_renewal;
  double cpu_s, wall_s;
  const struct step *steps; /* the last one installs the filter, if there is one */
  uint32_t **own_pid;       /* the filter's places for the process's own id */
  void **reseed;            /* callables to call before each fork */
  const struct step *renewal; /* replaces the common working folder by an empty one */
  const char *scratch;        /* its path */
  char head[HEAD_MAX];      /* out: the head of the frame for which a test's process was forked */
};

/* Shared only with the test's process, which unmaps it before any of the program's code runs.
   `state` is written last and read first. */
struct shared { _Atomic int state; volatile double cpu_s, at; };

static struct shared *shared;

static void unshare_page(void) {
  munmap(shared, sizeof *shared);
  shared = NULL;
}

static double now(clockid_t clock) {
  struct timespec t;
  return clock_gettime(clock, &t) ? -1.0 : t.tv_sec + t.tv_nsec * 1e-9;
}

/* ── frames ─────────────────────────────────────────────────────────────────────────────────────── */

static int exactly(int channel, void *to, size_t n) {
  for (size_t got = 0; got < n;) {
    ssize_t k = recv(channel, (char *)to + got, n - got, 0);
    if (k == 0) return -EPIPE;
    if (k < 0 && errno != EINTR) return -errno;
    if (k > 0) got += k;
  }
  return 0;
}

static int into_file(int channel, int fd, size_t n) {
  char buffer[CHUNK];
  int failed = 0;
  for (size_t left = n; left > 0 && !failed;) {
    size_t k = left < sizeof buffer ? left : sizeof buffer;
    failed = exactly(channel, buffer, k);
    for (size_t done = 0; done < k && !failed;) {
      ssize_t written = write(fd, buffer + done, k - done);
      if (written < 0) failed = -errno;
      else done += written;
    }
    explicit_bzero(buffer, k); /* processes forked later must not find another program's data */
    left -= k;
  }
  if (!failed && lseek(fd, 0, SEEK_SET) < 0) failed = -errno;
  return failed;
}

/* Read the next frame's head and return 1; return 0 with nothing read if it is not for this loop. */
static int next_head(struct plan *plan, uint32_t *body) {
  uint32_t lengths[2];
  char seen[sizeof lengths + HEAD_MAX] = {0};
  ssize_t n;
  size_t whole = sizeof lengths;
  do { /* heads are sent whole, but a stream may still deliver them in parts */
    n = recv(plan->channel, seen, whole, MSG_PEEK | MSG_WAITALL);
    if (n == 0) return -EPIPE;
    if (n < 0 && errno != EINTR) return -errno;
    if (n < (ssize_t)whole) {
      struct pollfd closed = {.fd = plan->channel, .events = POLLRDHUP};
      if (poll(&closed, 1, 1) > 0) return -EPIPE; /* the rest never comes */
      continue;
    }
    memcpy(lengths, seen, sizeof lengths);
    if (lengths[0] < 2 || lengths[0] >= HEAD_MAX) return 0;
    if (whole == sizeof lengths) n = -1, whole += lengths[0];
  } while (n < (ssize_t)whole);
  const char *head = seen + sizeof lengths;
  int single = !strncmp(head, "{\"single\": ", 11);
  int plain = !strncmp(head, "{}", 2) || !strncmp(head, "{\"function\": ", 13);
  if (plan->single ? !single : !plain) return 0;
  memset(plan->head, 0, sizeof plan->head);
  memcpy(plan->head, head, lengths[0]);
  *body = lengths[1];
  int failed = exactly(plan->channel, seen, whole);
  return failed ? failed : 1;
}

static int send_all(int channel, const char *data, size_t n) {
  while (n > 0) {
    ssize_t k = send(channel, data, n, MSG_NOSIGNAL);
    if (k < 0 && errno != EINTR) return -errno;
    if (k > 0) data += k, n -= k;
  }
  return 0;
}

static int send_file(int channel, int fd, off_t from, size_t n) {
  while (n > 0) {
    ssize_t k = sendfile(channel, fd, &from, n);
    if (k < 0 && errno != EINTR) return -errno;
    if (k == 0) return -EIO; /* no process is left that could have truncated the file */
    if (k > 0) n -= k;
  }
  return 0;
}

/* ── memory of the interpreter ──────────────────────────────────────────────────────────────────── */

/* A fork copies the entry of each page, 0.15 us, and there are thousands. So objects live in blocks that can
   become one huge page each, once all is imported. `slot` preloads this library for that: the interpreter
   takes its first memory before it can load anything. */
enum { HUGE_PAGE = 2 << 20, MOST_BLOCKS = 64 };
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static char *blocks[MOST_BLOCKS];
static int n_blocks;
static size_t used = HUGE_PAGE; /* bytes of the last block */

static char *map(size_t n) {
  char *got = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return got == MAP_FAILED ? NULL : got;
}

static void *take_arena(void *unused, size_t n) {
  (void)unused;
  if (used + n > HUGE_PAGE) {
    int in_block = n_blocks < MOST_BLOCKS && n < HUGE_PAGE;
    char *got = in_block ? map(2 * HUGE_PAGE) : NULL;
    if (!got) return map(n); /* near the limit of memory there may be no room for more */
    size_t before = -(uintptr_t)got % HUGE_PAGE;
    if (before) munmap(got, before);
    munmap(got + before + HUGE_PAGE, HUGE_PAGE - before);
    blocks[n_blocks++] = got + before;
    used = 0;
  }
  used += n;
  return blocks[n_blocks - 1] + used - n;
}

static void give_back_arena(void *unused, void *arena, size_t n) {
  (void)unused;
  munmap(arena, n);
}

__attribute__((constructor)) static void own_arenas(void) {
  if (!PyObject_SetArenaAllocator || Py_IsInitialized()) return;
  struct arenas own = {NULL, take_arena, give_back_arena};
  PyObject_SetArenaAllocator(&own);
}

/* Make each block one page. Where the kernel cannot, all works as before. */
void fork_server_collapse(void) {
  for (int i = 0; i < n_blocks; i++) madvise(blocks[i], HUGE_PAGE, MADV_COLLAPSE);
}

/* ── the test's process ─────────────────────────────────────────────────────────────────────────── */

static long take(const struct step *s) {
  const int64_t *a = s->arguments;
  return syscall(s->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void confine(const struct plan *plan) {
  if (plan->single) {
    shared->cpu_s = now(CLOCK_PROCESS_CPUTIME_ID);
    shared->at = now(CLOCK_MONOTONIC);
  }
  for (int64_t i = 0; i < plan->n_own_pid; i++) *plan->own_pid[i] = getpid();
  for (int64_t i = 0; i < plan->n_steps; i++) {
    if (take(plan->steps + i) < 0) {
      int number = plan->steps[i].number;
      dprintf(STDERR_FILENO, "step %d, system call %d: %s", (int)i, number, strerror(errno));
      _exit(1);
    }
  }
  shared->state = CONFINED;
  unshare_page();
}

/* For a test's process that `serve` left unconfined because its source must still be compiled. */
void fork_server_confine(const struct plan *plan) { confine(plan); }

void fork_server_refuse(const struct plan *plan, const char *why) {
  dprintf(plan->first_kept + ERR, "%s", why);
  shared->state = REFUSED;
  _exit(0);
}

/* ── the folder that tests use in turn ──────────────────────────────────────────────────────────── */

/* The common working folder as it was when it was made. What a test does to it or in it changes one of
   these: the size counts its entries, and no call sets the time of the last change. */
static struct stat fresh;

static int same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Make the folder as new as a mount of the next test's own would be. A new one costs a millisecond, so it
   is only replaced if the last test has touched it. */
static int renew(const struct plan *plan) {
  if (!plan->n_renewal) return 0;
  struct stat is;
  if (stat(plan->scratch, &is)) return -errno;
  if (is.st_dev == fresh.st_dev && is.st_mode == fresh.st_mode && is.st_nlink == fresh.st_nlink &&
      is.st_size == fresh.st_size && is.st_uid == fresh.st_uid && is.st_gid == fresh.st_gid &&
      same_time(is.st_atim, fresh.st_atim) && same_time(is.st_mtim, fresh.st_mtim) &&
      same_time(is.st_ctim, fresh.st_ctim))
    return 0;
  for (int64_t i = 0; i < plan->n_renewal; i++)
    if (take(plan->renewal + i) < 0) return -errno;
  if (stat(plan->scratch, &fresh)) return -errno;
  struct timespec tick; /* else a test's change could still bear the time of the mount */
  while (!clock_gettime(CLOCK_REALTIME_COARSE, &tick) && same_time(tick, fresh.st_ctim))
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
  return 0;
}

/* ── its parent ─────────────────────────────────────────────────────────────────────────────────── */

/* As `proc_files.delay_s`. */
static double delay_s(int proc, const char *tasks) {
  int fd = proc < 0 ? -1 : openat(proc, tasks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  unsigned long long longest = 0, used, waited;
  for (struct dirent *task; folder && (task = readdir(folder));) {
    char path[280], text[64] = {0};
    snprintf(path, sizeof path, "%s/schedstat", task->d_name);
    int file = *task->d_name == '.' ? -1 : openat(fd, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (read(file, text, sizeof text - 1) > 0 && sscanf(text, "%llu %llu", &used, &waited) == 2 &&
        waited > longest)
      longest = waited;
    close(file);
  }
  if (folder) closedir(folder);
  else if (fd >= 0) close(fd);
  return longest * 1e-9;
}

/* As `proc_files.wall_limit`. */
static const char *wall_limit(double elapsed, double wall, double delayed) {
  if (elapsed - (delayed < MOST_WAITS * wall ? delayed : MOST_WAITS * wall) < wall) return NULL;
  return elapsed - delayed >= wall ? "\"wall\"" : "\"starved\"";
}

/* As `forked.Watch.wait`. */
static const char *watch(const struct plan *plan, pid_t pid, int pidfd, double started) {
  clockid_t clock = (clockid_t)(~(unsigned)pid << 3 | 2); /* clock_getcpuclockid(3) */
  char tasks[32];
  struct stat of_tasks;
  snprintf(tasks, sizeof tasks, "%d/task", (int)pid);
  struct pollfd ended = {.fd = pidfd, .events = POLLIN};
  const char *killed = NULL;
  while (!killed) {
    int compiling = plan->single && shared->state == FORKED;
    double used = now(clock), cpu_left = plan->cpu_s, wall = compiling ? COMPILE_WALL_S : plan->wall_s;
    double elapsed = now(CLOCK_MONOTONIC) - (plan->single && !compiling ? shared->at : started);
    if (!compiling && used >= 0) cpu_left -= used - shared->cpu_s;
    if (cpu_left <= 0) { killed = "\"cpu\""; break; }
    if (elapsed >= wall && (killed = wall_limit(elapsed, wall, delay_s(plan->proc, tasks)))) break;
    double wait = cpu_left > SHORTEST_S ? cpu_left : SHORTEST_S;
    if (elapsed < wall && wait > wall - elapsed) wait = wall - elapsed;
    if (wait > WATCH_S) wait = WATCH_S;
    if (poll(&ended, 1, 1 + (int)(1000 * wait)) > 0) break;
    if (plan->proc >= 0 && !fstatat(plan->proc, tasks, &of_tasks, 0) &&
        (int64_t)of_tasks.st_nlink > plan->max_threads)
      killed = "\"threads\"";
  }
  if (killed) kill(pid, SIGKILL);
  return killed;
}

/* As `printed.Outputs.send_end`. */
static int report(const struct plan *plan, int status, const struct rusage *usage, const char *killed,
                  double started) {
  struct { off_t size, from; size_t n; } files[3];
  int64_t cap = plan->output_bytes;
  int full = 0;
  for (int i = 0; i < 3; i++) {
    struct stat info;
    if (fstat(plan->first_kept + OUT + i, &info)) return -errno;
    files[i].size = info.st_size;
    files[i].from = 0;
    files[i].n = info.st_size < cap ? info.st_size : cap;
    full |= info.st_size >= cap;
  }
  if (files[1].size > TAIL) files[1].from = files[1].size - TAIL;
  files[1].n = files[1].size - files[1].from;
  double cpu_s = usage->ru_utime.tv_sec + usage->ru_stime.tv_sec +
                 (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6 - shared->cpu_s;
  double wall_s = now(CLOCK_MONOTONIC) - (plan->single && shared->state == CONFINED ? shared->at : started);
  char frame[HEAD_MAX];
  int n = snprintf(
      frame + 8, sizeof frame - 8,
      "{\"confined\": %s, \"refused\": %s, \"exit\": %d, \"killed\": %s, \"cpu_s\": %.6f, "
      "\"wall_s\": %.6f, \"full\": %s, \"printed\": %zu, \"answered\": %zu}",
      shared->state == CONFINED ? "true" : "false", shared->state == REFUSED ? "true" : "false",
      WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), killed ? killed : "null",
      cpu_s > 0 ? cpu_s : 0.0, wall_s, full ? "true" : "false", files[0].n, files[2].n);
  uint32_t lengths[2] = {n, files[0].n + files[1].n + files[2].n};
  memcpy(frame, lengths, sizeof lengths);
  int failed = send_all(plan->channel, frame, n + 8);
  static const int order[] = {OUT, ANSWER, ERR};
  for (int i = 0; i < 3 && !failed; i++) {
    int file = order[i];
    failed = send_file(plan->channel, plan->first_kept + file, files[file - OUT].from, files[file - OUT].n);
  }
  return failed;
}

/* As linux.memory_file does where files in memory are denied. */
static int file_on_disk(int64_t n_bytes) {
  int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  struct statvfs space;
  if (fd < 0 || fstatvfs(fd, &space) || !space.f_blocks) return fd;
  if ((int64_t)(space.f_bavail * space.f_frsize) >= n_bytes) return fd;
  close(fd);
  errno = ENOSPC;
  return -1;
}

static int make_files(const struct plan *plan) {
  static const char *names[] = {"in", "out", "err", "answer", "source"};
  for (int i = 0; i < (plan->single ? N_DESCRIPTORS : SOURCE); i++) {
    int fd = memfd_create(names[i], 0);
    if (fd < 0 && errno == EPERM) fd = file_on_disk(3 * plan->output_bytes);
    if (fd < 0 || dup2(fd, plan->first_kept + i) < 0) return -errno;
    close(fd);
  }
  return 0;
}

static int read_body(const struct plan *plan, uint32_t body) {
  uint32_t source = 0;
  if (plan->single) {
    source = strtoul(plan->head + 11, NULL, 10);
    if (source > body) return -EBADMSG;
    int failed = into_file(plan->channel, plan->first_kept + SOURCE, source);
    if (failed) return failed;
  }
  return into_file(plan->channel, plan->first_kept + IN, body - source);
}

static pid_t fork_test(const struct plan *plan) {
  for (int64_t i = 0; i < plan->n_reseed; i++) {
    void *none = PyObject_CallNoArgs(plan->reseed[i]);
    if (none) Py_DecRef(none);
    else PyErr_Clear();
  }
  void *volatile large = malloc(1 << 16); /* sorts free memory once here, instead of in every test */
  free(large);
  PyOS_BeforeFork();
  pid_t pid = plan->clone_flags ? syscall(SYS_clone, plan->clone_flags | SIGCHLD, 0, 0, 0, 0) : fork();
  int failed = errno;
  if (pid == 0) PyOS_AfterFork_Child();
  else PyOS_AfterFork_Parent();
  errno = failed;
  return pid;
}

/* First step of a test's process: it dies with its parent, even before it is confined. */
static void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  pid_t above = getppid(); /* 0 inside a PID namespace */
  if (above && above != parent) _exit(1);
}

static int serve(struct plan *plan) {
  pid_t self = getpid();
  for (;;) {
    uint32_t body = 0;
    int status, got = next_head(plan, &body);
    if (got <= 0) return got;
    int failed = renew(plan);
    if (failed) return failed;
    double started = now(CLOCK_MONOTONIC);
    shared->state = FORKED;
    shared->cpu_s = shared->at = 0;
    failed = make_files(plan);
    if (!failed) failed = read_body(plan, body);
    if (failed) return failed;
    pid_t pid = fork_test(plan);
    if (pid < 0) return -errno;
    if (pid == 0) {
      die_with(self);
      if (plan->single) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
      else confine(plan);
      return strstr(plan->head, "\"function\": ") ? CALL : SCRIPT;
    }
    int pidfd = syscall(SYS_pidfd_open, pid, 0), blind = pidfd < 0 ? -errno : 0;
    if (blind) kill(pid, SIGKILL);
    const char *killed = blind ? NULL : watch(plan, pid, pidfd, started);
    if (!blind) close(pidfd);
    struct rusage usage;
    while (wait4(pid, &status, 0, &usage) < 0)
      if (errno != EINTR) return -errno;
    if (blind) return blind;
    failed = report(plan, status, &usage, killed, started);
    syscall(SYS_close_range, plan->first_kept, plan->first_kept + N_DESCRIPTORS - 1, 0);
    if (failed) return failed;
    if (plan->single && (waitpid(-1, &status, WNOHANG) >= 0 || errno != ECHILD)) return ASTRAY;
  }
}

/* Serve tests until a frame comes that is not for this loop.

   Return UNHANDLED then, with the frame unread; SCRIPT or CALL in a test's process, confined unless `single`;
   ASTRAY after a single that left processes behind; a negative errno if anything failed here, -EPIPE
   if the channel is closed. */
int fork_server_serve(struct plan *plan) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return shared = NULL, -errno;
  int outcome = serve(plan);
  if (outcome != SCRIPT && outcome != CALL) unshare_page();
  return outcome;
}
