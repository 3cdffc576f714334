"""Programs that have read the verifier of exported tasks and try to earn what they have not earned.

`SECRET` stands for a regular expression, as bytes, of what the tests expect; `LOGS` for the reward's
folder. Each prints or returns something wrong unless it gets at the secret.
"""

from tests.text_cases import text_cases

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


def program(kind: str, body: str) -> str:
    """An attack with the tools that it uses: it spies for the answer, or prints a wrong one."""
    if kind == "alone":
        return body
    return f"{TOOLS}\n{body}{ANSWERS if kind == 'spies' else WRONG}"


ATTACKS = {
    name: program(kind, body) for name, kind, body in text_cases(__file__, "export_attacks.txt")
}
"""Those that strike their judges have no effect if the program has a user of its own, and else earn 0."""
