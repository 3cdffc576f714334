"""System call numbers of x86_64 and aarch64, and which of them a test may use.

It is an allow-list, since kernels keep gaining calls. aarch64 never had the older forms (`open`, `fork`),
which are -1 there; from 424 on all architectures share their numbers.
"""

from __future__ import annotations

from typing import Final

ARCHITECTURES: Final = {"x86_64": 0, "aarch64": 1}
AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FIRST_SHARED: Final = 424
"""First number shared by all architectures. A call missing here is denied below it (EPERM); from it on,
libraries do without the call (ENOSYS)."""

OURS: Final[dict[str, tuple[int, int]]] = {
    "unshare": (272, 97), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "seccomp": (317, 277), "capset": (126, 91), "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "sethostname": (170, 161), "mount_setattr": (442, 442),
}  # fmt: skip
"""Calls made while confining, never by a test."""

CONDITIONAL: Final[dict[str, tuple[int, int]]] = {
    "clone": (56, 220), "clone3": (435, 435), "prlimit64": (302, 261), "kill": (62, 129),
    "tgkill": (234, 131), "fcntl": (72, 25), "ioctl": (16, 29), "sendto": (44, 206),
    "socketpair": (53, 199), "prctl": (157, 167),
}  # fmt: skip
"""Calls allowed with some arguments (`seccomp`)."""

_FILES: Final[dict[str, tuple[int, int]]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, -1), "close": (3, 57), "stat": (4, -1),
    "fstat": (5, 80), "lstat": (6, -1), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "access": (21, -1), "pipe": (22, -1),
    "sendfile": (40, 71), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "flock": (73, 32),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "getdents": (78, -1),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "rename": (82, -1), "mkdir": (83, -1), "rmdir": (84, -1), "creat": (85, -1), "link": (86, -1),
    "unlink": (87, -1), "symlink": (88, -1), "readlink": (89, -1), "umask": (95, 166),
    "statfs": (137, 43), "fstatfs": (138, 44), "readahead": (187, 213), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "fadvise64": (221, 223), "openat": (257, 56), "mkdirat": (258, 34),
    "newfstatat": (262, 79), "unlinkat": (263, 35), "renameat": (264, 38), "linkat": (265, 37),
    "symlinkat": (266, 36), "readlinkat": (267, 78), "faccessat": (269, 48), "splice": (275, 76),
    "tee": (276, 77), "sync_file_range": (277, 84), "fallocate": (285, 47), "pipe2": (293, 59),
    "preadv": (295, 69), "pwritev": (296, 70), "renameat2": (316, 276),
    "copy_file_range": (326, 285), "preadv2": (327, 286), "pwritev2": (328, 287),
    "statx": (332, 291), "close_range": (436, 436), "openat2": (437, 437), "faccessat2": (439, 439),
}  # fmt: skip

NAMES_OF_FILES: Final = (
    *("creat", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
"""Those of them that make, rename or remove files."""

_MEMORY: Final[dict[str, tuple[int, int]]] = {
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "mremap": (25, 216), "msync": (26, 227), "madvise": (28, 233),
    "get_mempolicy": (239, 236),
}  # fmt: skip

_TIME_AND_SIGNALS: Final[dict[str, tuple[int, int]]] = {
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pause": (34, -1), "nanosleep": (35, 101), "getitimer": (36, 102), "alarm": (37, -1),
    "setitimer": (38, 103), "gettimeofday": (96, 169), "times": (100, 153),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "time": (201, -1), "restart_syscall": (219, 128),
    "timer_create": (222, 107), "timer_settime": (223, 110), "timer_gettime": (224, 108),
    "timer_getoverrun": (225, 109), "timer_delete": (226, 111), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "signalfd": (282, -1),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "signalfd4": (289, 74),
}  # fmt: skip

_WAITING: Final[dict[str, tuple[int, int]]] = {
    "poll": (7, -1), "select": (23, -1), "sched_yield": (24, 124), "recvfrom": (45, 207),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "setsockopt": (54, 208), "getsockopt": (55, 209), "futex": (202, 98),
    "epoll_create": (213, -1), "epoll_wait": (232, -1), "epoll_ctl": (233, 21),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99),
    "get_robust_list": (274, 100), "epoll_pwait": (281, 22), "eventfd": (284, -1),
    "eventfd2": (290, 19), "epoll_create1": (291, 20), "rseq": (334, 293),
    "epoll_pwait2": (441, 441), "futex_waitv": (449, 449),
}  # fmt: skip

_ABOUT_ITSELF: Final[dict[str, tuple[int, int]]] = {
    "getpid": (39, 172), "exit": (60, 93), "wait4": (61, 260), "uname": (63, 160),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "getuid": (102, 174),
    "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173),
    "getpgrp": (111, -1), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgid": (121, 155), "getsid": (124, 156), "capget": (125, 90),
    "getpriority": (140, 141), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_rr_get_interval": (148, 127), "gettid": (186, 178), "sched_getaffinity": (204, 123),
    "set_tid_address": (218, 96), "exit_group": (231, 94), "waitid": (247, 95),
    "getcpu": (309, 168), "getrandom": (318, 278),
}  # fmt: skip

ALLOWED: Final[dict[str, tuple[int, int]]] = (
    _FILES | _MEMORY | _TIME_AND_SIGNALS | _WAITING | _ABOUT_ITSELF
)
"""Calls allowed with any arguments: those of Python, its standard library and numpy without processes."""

EXECUTION: Final[dict[str, tuple[int, int]]] = {"execveat": (322, 281), "arch_prctl": (158, -1)}
"""Calls needed to execute another program (`seccomp.ONE_EXEC`)."""

PROCESSES: Final[dict[str, tuple[int, int]]] = {
    "execve": (59, 221), "fork": (57, -1), "vfork": (58, -1), "setpgid": (109, 154),
    "setsid": (112, 157), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53),
    "mknod": (133, -1), "mknodat": (259, 33), "truncate": (76, 45), "utime": (132, -1),
    "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88), "setpriority": (141, 140),
}  # fmt: skip
"""Further calls of a shell and its tools, whose processes all end with it."""

ROOM: Final[dict[str, tuple[int, int]]] = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "bind": (49, 200), "listen": (50, 201), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "sendmmsg": (307, 269), "recvmmsg": (299, 243), "chown": (92, -1), "fchown": (93, 55),
    "lchown": (94, -1), "fchownat": (260, 54), "fchmodat2": (452, 452), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "inotify_init": (253, -1),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28),
    "membarrier": (324, 283), "mincore": (27, 232),
    "mlock": (149, 228), "munlock": (150, 229), "mlock2": (325, 284), "mlockall": (151, 230),
    "munlockall": (152, 231), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setgroups": (116, 159), "setresuid": (117, 147),
    "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setrlimit": (160, 164), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "sched_getattr": (315, 275),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "sync": (162, 81),
    "syncfs": (306, 267), "ioprio_get": (252, 31), "ioprio_set": (251, 30), "vmsplice": (278, 75),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "personality": (135, 92),
}  # fmt: skip
"""Further calls of ordinary software, in its own namespaces and without capabilities (`seccomp.ROOM`)."""

NUMBERS: Final = OURS | CONDITIONAL | ALLOWED | EXECUTION | PROCESSES | ROOM
