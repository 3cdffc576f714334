"""Typical verifiers, each with files that an agent may leave: test.sh, solve.sh, files.

In FORGERIES the work is wrong and something else is tried; in ISOLATED and IN_PROCESS it is right.
"""

PAID = "echo 1 > /logs/verifier/reward.txt"
FORGE = """import os
try: open('/logs/verifier/reward.txt', 'w').write('1')
except OSError: pass
os._exit(0)
"""
PAYS = "echo 1 > /logs/verifier/reward.txt\nexit 0\n"
LEAVES = "import os; os._exit(0)\n"
EXITS_IN_C = "#include <stdlib.h>\n__attribute__((constructor)) void f(){_Exit(0);}\n"
INJECTED = "a[$(echo 1 > /logs/verifier/reward.txt)]\n"
FAILS_PY = {"tests/check.py": "assert False\n"}
FAILS_SH = {"tests/check.sh": "#!/bin/bash\nexit 1\n"}
TWO = {"tests/a": "1\n", "tests/b": "2\n"}
FAILING_TEST = {
    "tests/test_x.py": "import unittest\nclass T(unittest.TestCase):\n  def test(self): self.fail()\n"
}
HARNESS = {"tests/h.c": '#include <stdio.h>\nint f();int main(){if(f()==42)puts("OK");}\n'}
CHEATS_HARNESS = '#include <stdio.h>\n#include <stdlib.h>\nint f(){puts("OK");exit(0);}\n'
IMAGE = "FROM python:3.12-slim\nWORKDIR /app\nCOPY . .\n"

Case = tuple[str, str] | tuple[str, str, dict[str, str]]


def put(path: str, content: str) -> str:
    """Return a command that writes a file."""
    end = "" if content.endswith("\n") else "\n"
    return f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{content}{end}END\n"


def imports(line: str) -> dict[str, str]:
    return {"tests/check.py": f"import sys\nsys.path.insert(0, '/app')\n{line}\nassert False\n"}


SOLUTION = put("/app/solution.py", "print(42)")
LIBRARY = put("/app/x.c", EXITS_IN_C) + "gcc -shared -fPIC -o /app/x.so /app/x.c"

FORGERIES: dict[str, Case] = {
    # Python, before and beside the verifier's own code
    "sitecustomize": (f"PYTHONPATH=/app python3 /tests/check.py && {PAID}",
                      put("/app/sitecustomize.py", FORGE), FAILS_PY),
    "encodings": (f"PYTHONPATH=/app python3 /tests/check.py && {PAID}",
                  put("/app/encodings/__init__.py", FORGE), FAILS_PY),
    "the guard's name": (f"PYTHONPATH=/app python3 /tests/check.py && {PAID}",
                         put("/app/_harbor_guard/__init__.py", FORGE), FAILS_PY),
    "a zip on the path": (f"PYTHONPATH=/app/z.zip python3 -c 'import zz; assert False' && {PAID}",
                          f"cd /tmp; {put('zz.py', FORGE)}python3 -m zipfile -c /app/z.zip zz.py"),
    "a venv": (f"/app/.venv/bin/python /tests/check.py && {PAID}",
               "mkdir -p /app/.venv/bin; ln -s $(command -v python3) /app/.venv/bin/python;"
               "echo 'home = /usr/bin' > /app/.venv/pyvenv.cfg;"
               + put("/app/.venv/lib/python3.11/site-packages/sitecustomize.py", FORGE), FAILS_PY),
    "a compiled file of the image's module": (
        f"cd /app; python3 -c 'import lib; assert False' && {PAID}",
        f"cd /app; cp -p lib.py keep; {put('/app/lib.py', FORGE)}python3 -c 'import py_compile as p;"
        'p.compile("lib.py", invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)\'; mv keep lib.py',
        {"environment/lib.py": "x = 1\n", "environment/Dockerfile": IMAGE}),
    "a standard module's name": (
        f"cd /app; python3 -c 'import json; assert json.loads(\"1\") == 2' && {PAID}",
        put("/app/json.py", "def loads(x): return 2\n")),
    "a runner's name": (f"cd /app; python3 -m unittest -q /tests/test_x.py && {PAID}",
                        put("/app/unittest.py", "pass\n"), FAILING_TEST),
    # Python, by the verifier's own doing
    "imported": (f"python3 /tests/check.py && {PAID}", put("/app/m.py", FORGE), imports("import m")),
    "imported by a child": (f"python3 /tests/check.py && {PAID}", put("/app/m.py", FORGE),
                            imports("import os\nif os.fork() == 0: import m\nos.wait()")),
    "imported by a thread": (
        f"python3 /tests/check.py && {PAID}", put("/app/m.py", FORGE),
        imports("import threading\nt = threading.Thread(target=__import__, args=('m',))\n"
                "t.start(); t.join()")),
    "becomes another program": (f"python3 /tests/check.py && {PAID}",
                                put("/app/m.py", "import os; os.execv('/bin/true', ['true'])\n"),
                                imports("import m")),
    "evaluated": (f"python3 -c \"assert eval(open('/app/n').read()) == 5\" && {PAID}",
                  put("/app/n", "__import__('os')._exit(0)")),
    "marshalled": (
        f"python3 -c 'import marshal; exec(marshal.load(open(\"/app/m\",\"rb\"))); assert 0' && {PAID}",
        "python3 -c \"import marshal; marshal.dump(compile('import os; os._exit(0)',"
        "'/usr/lib/python3.11/os.py','exec'), open('/app/m','wb'))\""),
    "shelved": (f"python3 -c 'import shelve; assert shelve.open(\"/app/s\")[\"a\"] == 2' && {PAID}",
                "python3 - <<'P'\nimport shelve, os\nclass E:\n  def __reduce__(self): "
                "return (os._exit, (0,))\ns = shelve.open('/app/s'); s['a'] = E(); s.close()\nP"),
    "configures logging": (
        "python3 -c 'import logging.config as c; c.fileConfig(\"/app/l.ini\")'; true",
        put("/app/l.ini", "[loggers]\nkeys=root\n[handlers]\nkeys=h\n[formatters]\nkeys=\n"
            "[logger_root]\nhandlers=h\n[handler_h]\nclass=__import__('os').system\n"
            "args=('echo 1 > /logs/verifier/reward.txt',)\n")),
    "in the command line": (f"M=$(cat /app/m); python3 -c \"import $M; assert False\" && {PAID}",
                            "echo 'os;os._exit(0)' > /app/m"),
    "equals everything": (
        f"python3 /tests/check.py && {PAID}",
        put("/app/m.py", "class E:\n  def __eq__(self, other): return True\ndef f(): return E()\n"),
        {"tests/check.py": "import sys\nsys.path.insert(0, '/app')\nimport m\nassert m.f() == 5\n"}),
    "patches the runner": (
        f"PYTHONPATH=/app python3 -m unittest -q /tests/test_x.py && {PAID}",
        put("/app/m.py", "import unittest\nunittest.TestCase.fail = lambda *_: None\n"),
        {"tests/test_x.py": "import m\n" + FAILING_TEST["tests/test_x.py"]}),
    "customises Python": (
        f"python3 /tests/check.py && {PAID}",
        "d=/root/.local/lib/python3.11/site-packages; mkdir -p $d; cd $d;"
        f"echo '{LEAVES.strip()}' | tee usercustomize.py sitecustomize.py x.pth", FAILS_PY),
    "a module changed by a run": (
        f"cd /app; python3 s.py > /dev/null; python3 -c 'import lib; assert False' && {PAID}",
        put("/app/s.py", f"open('/app/lib.py', 'w').write({LEAVES!r})\n"),
        {"environment/lib.py": "x = 1\n", "environment/Dockerfile": IMAGE}),
    # libraries and programs
    "preloaded": (f"LD_PRELOAD=/app/x.so diff /tests/a /tests/b && {PAID}", LIBRARY, TWO),
    "loaded by ctypes": (f"python3 -c 'import ctypes; ctypes.CDLL(\"/app/x.so\"); assert 0' && {PAID}",
                         LIBRARY),
    "a compiler's plugin": (f"gcc -fplugin=/app/x.so -c /tests/a.c -o /tmp/a.o && {PAID}", LIBRARY,
                            {"tests/a.c": "int x = ;\n"}),
    "a tool in the path": (f"PATH=/app:$PATH diff /tests/a /tests/b && {PAID}",
                           put("/app/diff", "#!/bin/sh\nexit 0\n") + "chmod +x /app/diff", TWO),
    "a copy of true": (f"/app/.venv/bin/pytest /tests/test_x.py && {PAID}",
                       "mkdir -p /app/.venv/bin; cp /usr/bin/true /app/.venv/bin/pytest", FAILING_TEST),
    "a link to true": (f"/app/check /tests/test_x.py && {PAID}", "ln -s /usr/bin/true /app/check",
                       FAILING_TEST),
    "by its descriptor": (
        "python3 - <<'PY'\nimport os\nos.execve(os.open('/app/t', os.O_RDONLY), ['t'], {})\nPY",
        put("/app/t", f"#!/bin/bash\n{PAYS}") + "chmod +x /app/t"),
    "linked into the harness": (
        f"gcc /tests/h.c /app/lib.c -o /tmp/h && [ \"$(/tmp/h)\" = OK ] && {PAID}",
        put("/app/lib.c", CHEATS_HARNESS), HARNESS),
    "joined to the harness": (
        f"cat /tests/h.c /app/lib.c > /tmp/a.c; gcc /tmp/a.c -o /tmp/h; [ \"$(/tmp/h)\" = OK ] && {PAID}",
        put("/app/lib.c", CHEATS_HARNESS), HARNESS),
    # interpreters other than Python
    "a Makefile": (f"make -C /app check && {PAID}", put("/app/Makefile", "check:\n\t@true\n")),
    "a Node module": (f"node -e 'require(\"/app/x.js\"); process.exit(1)' && {PAID}",
                      put("/app/x.js", "process.exit(0)\n")),
    "Node's options": (f"export NODE_OPTIONS=\"$(cat /app/opts)\"; node /tests/t.js && {PAID}",
                       "echo '--require /app/p.js' > /app/opts; "
                       + put("/app/p.js", "process.exit(0)\n"), {"tests/t.js": "process.exit(1)\n"}),
    "a Perl module": (f"perl -I/app -e 'use Foo; exit 1' && {PAID}", put("/app/Foo.pm", "exit 0;\n")),
    "a git hook": (f"cd /app && git commit -q --allow-empty -m x; {PAID}",
                   "cd /app; git init -q .; git config user.email a@b; git config user.name a; "
                   + put("/app/.git/hooks/pre-commit", f"#!/bin/sh\n{PAYS}")
                   + "chmod +x .git/hooks/pre-commit"),
    "sed's e": ("sed \"$(cat /app/s)\" /tests/a", f"echo '1e {PAID}' > /app/s", TWO),
    "awk's text": (f"N=$(cat /app/n); awk \"BEGIN {{ exit !($N > 3) }}\" && {PAID}",
                   "echo '1); exit 0; (1' > /app/n"),
    "tar's action": ("cd /app && tar cf /tmp/x.tar *; true",
                     f"cd /app; echo '{PAID}' > x.sh; touch -- '--checkpoint=1' "
                     "'--checkpoint-action=exec=sh x.sh'; head -c 900000 /dev/zero > f"),
    # shells
    "sourced": ("source /app/env.sh; exit 1", put("/app/env.sh", PAYS)),
    "sourced, then read": ("source /app/env.sh; exit 1",
                           put("/app/env.sh", f"exec < /app/env.sh\n{PAYS}")),
    "sourced by dash": (f"sh -c '. /app/env.sh; exit 1' && {PAID}", put("/app/env.sh", "exit 0\n")),
    "sourced from a pipe": ("source <(cat /app/env)", put("/app/env", PAYS)),
    "piped to a shell": ("cat /app/env | bash", put("/app/env", PAYS)),
    "a shell's text": ('bash -c "$(cat /app/env)"', put("/app/env", PAYS)),
    "eval": ('eval "$(cat /app/env)"', put("/app/env", PAYS)),
    "a command's name": ("$(cat /app/cmd)", put("/app/cmd", f"eval {PAID}")),
    "arithmetic": (f"out=$(python3 /app/s.py); [[ $out -eq 7 ]] && {PAID}",
                   put("/app/s.py", f"print('{INJECTED.strip()}')")),
    "arithmetic in a library": ("source /tests/lib.sh", put("/app/n", INJECTED),
                                {"tests/lib.sh": "x=$(cat /app/n)\n(( x > 1 ))\n"}),
    "a subscript": ('x=$(cat /app/n); if [ -v "$x" ]; then :; fi', put("/app/n", INJECTED)),
    "a profile": ("bash -lc true", f"echo '{PAID}' > /root/.profile"),
    "BASH_ENV": ("export $(cat /app/.env); bash -c 'ls'",
                 put("/app/.env", "BASH_ENV=/app/e.sh") + put("/app/e.sh", PAYS)),
    "a function of the environment": (
        'env "$(cat /app/e)" bash /tests/check.sh',
        f"printf 'BASH_FUNC_exit%%%%=() {{ {PAID}; }}' > /app/e", FAILS_SH),
    # files under another name
    "copied": (f"cp /app/t.py /tmp/t.py; [ \"$(python3 /tmp/t.py)\" = 43 ]; {PAID}",
               put("/app/t.py", FORGE)),
    "installed": (f"install -m 755 /app/t /tmp/t; [ \"$(/tmp/t)\" = 43 ] && {PAID}",
                  put("/app/t", f"#!/bin/bash\n{PAYS}")),
    "moved over a test": (f"cp -r /app/t/. /tests/; bash /tests/check.sh && {PAID}",
                          put("/app/t/check.sh", "exit 0\n"), FAILS_SH),
    "a folder of the image moved": (
        f"bash /app/a/check.sh && {PAID}", "cd /app; mv a old; mv b a",
        {"environment/a/check.sh": "exit 1\n", "environment/b/check.sh": "exit 0\n",
         "environment/Dockerfile": IMAGE}),
    "a file of the image linked": (
        f"bash /app/check.sh && {PAID}", "cd /app; rm check.sh; ln ok.sh check.sh",
        {"environment/check.sh": "exit 1\n", "environment/ok.sh": "exit 0\n",
         "environment/Dockerfile": IMAGE}),
    "an empty copy of a test": (f"python3 /app/c.py && {PAID}", ": > /app/c.py", {"tests/c.py": ""}),
    "swapped by a child": (
        f"cp /tests/check.sh /tmp/c.sh; python3 /app/s.py > /tmp/o; cat /tmp/o; bash /tmp/c.sh && {PAID}",
        put("/app/s.py", "open('/tmp/c.sh', 'w').write('exit 0')\n"), FAILS_SH),
    "a child's link to the reward": (
        "python3 /app/s.py > /tmp/o; cat /tmp/o > /tmp/res",
        put("/app/s.py", "import os\nos.symlink('/logs/verifier/reward.txt', '/tmp/res')\nprint(1)\n")),
    "/tests elsewhere": (
        f"bash /tests/check.sh && {PAID}",
        "rm -rf /tests; mkdir /app/t; ln -s /app/t /tests; echo exit > /app/t/check.sh", FAILS_SH),
    "/logs elsewhere": ("true", "rm -rf /logs; mkdir -p /app/l/verifier; ln -s /app/l /logs; "
                                "echo 1 > /app/l/verifier/reward.txt"),
    "an output linked to the reward": (
        "python3 /app/s.py > /tmp/out",
        put("/app/s.py", "print('{\"reward\": 1}')\n")
        + "ln -s /logs /app/l; ln -s /app/l/verifier/reward.json /tmp/out"),
    "programs replaced": (
        f"diff /tests/a /tests/b && {PAID}",
        "cd /app; printf '#!/bin/sh\\nexit 0\\n' > diff; chmod +x diff; cp diff /usr/local/bin/;"
        "rm -rf /bin; ln -s /app /bin; echo 'PATH=/app:$PATH' | tee /root/.bashrc /root/.profile;"
        "echo /app/x.so > /etc/ld.so.preload", TWO),
    "the reward itself": ("cp /app/out/* /logs/verifier/", put("/app/out/reward.txt", "1")),
    # processes
    "an exit status alone": (f"bash /app/run_tests.sh && {PAID}", put("/app/run_tests.sh", "exit 0")),
    "an exit status with a log": (f"bash /app/run_tests.sh > /tmp/log 2>&1 && {PAID}",
                                  put("/app/run_tests.sh", "exit 0")),
    "a daemon": ("sleep 0.3", f"setsid sh -c 'while :; do {PAID}; done' & sleep 0.1"),
    "a child's daemon": (
        "[ \"$(python3 /app/s.py)\" = 43 ]; sleep 0.3",
        put("/app/s.py", "import os, time\nif os.fork() == 0:\n  os.setsid(); os.close(1)\n"
            "  for _ in range(60):\n    try: open('/logs/verifier/reward.txt', 'w').write('1')\n"
            "    except OSError: pass\n    time.sleep(0.005)\n")),
    "reads what is expected": (
        f"[ \"$(python3 /app/s.py)\" = \"$(cat /tests/expected)\" ] && {PAID}",
        put("/app/s.py", "print(open('/tests/expected').read())\n"), {"tests/expected": "secret\n"}),
    "reads beside its input": (
        f"[ \"$(python3 /app/s.py /tests/in)\" = \"$(cat /tests/expected)\" ] && {PAID}",
        put("/app/s.py", "print(open('/tests/expected').read())\n"),
        {"tests/expected": "secret\n", "tests/in": "1"}),
    "given the reward's file": ("exec 5>/logs/verifier/reward.txt; [ \"$(python3 /app/s.py)\" = 1 ]",
                                put("/app/s.py", "import os; os.write(5, b'1')\n")),
}  # fmt: skip
RUNS_IT = "import subprocess, sys\nrun = [sys.executable, '/app/solution.py']\n"
ISOLATED: dict[str, Case] = {
    "output": (f'out=$(python3 /app/solution.py); [ "$out" = 42 ] && {PAID}', SOLUTION),
    "output in a pipe": (f"cd /app; echo 3 | python3 solution.py | grep -q 42 && {PAID}", SOLUTION),
    "output in a file": (f"python3 /app/solution.py > /tmp/o; diff /tmp/o <(echo 42) && {PAID}",
                         SOLUTION),
    "a file that it writes": (
        f'cd /app && python3 w.py && [ "$(cat /app/out.txt)" = 42 ] && {PAID}',
        put("/app/w.py", "open('/app/out.txt', 'w').write('42')\n")),
    "data": (f"python3 /tests/check.py && {PAID}", put("/app/o.json", "42"),
             {"tests/check.py": "import json\nassert json.load(open('/app/o.json')) == 42\n"}),
    "a database": (
        f"python3 /tests/check.py && {PAID}",
        "python3 -c \"import sqlite3; c = sqlite3.connect('/app/a'); c.execute('create table t(x)')\"",
        {"tests/check.py": "import sqlite3\nassert not sqlite3.connect('/app/a').execute("
                           "'select x from t').fetchall()\n"}),
    "Python runs it": (f"python3 /tests/check.py && {PAID}", SOLUTION,
                       {"tests/check.py": RUNS_IT + "assert subprocess.check_output(run) == b'42\\n'\n"}),
    "Python runs it by a shell": (
        f"python3 /tests/check.py && {PAID}", SOLUTION,
        {"tests/check.py": "import subprocess\nfor n in range(3):\n  assert subprocess.check_output("
                           "f'cd /app && python3 solution.py {n}', shell=True) == b'42\\n'\n"}),
    "unittest runs it": (
        f"cd /tests && python3 -m unittest -q test_x && {PAID}", SOLUTION,
        {"tests/test_x.py": RUNS_IT + "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n"
                            "    self.assertEqual(subprocess.check_output(run), b'42\\n')\n"}),
    "a module": (f'cd /app; [ "$(python3 -m solution)" = 42 ] && {PAID}', SOLUTION),
    "a package's main": (f'cd /app; [ "$(python3 -m pkg)" = 42 ] && {PAID}',
                         put("/app/pkg/__main__.py", "print(42)") + "touch /app/pkg/__init__.py"),
    "compiled": (f'gcc /app/m.c -o /tmp/m && [ "$(/tmp/m)" = 42 ] && {PAID}',
                 put("/app/m.c", '#include <stdio.h>\nint main(){puts("42");}\n')),
    "a script": (f'chmod +x /app/run.sh; [ "$(/app/run.sh)" = 42 ] && {PAID}',
                 put("/app/run.sh", "#!/bin/sh\necho 42\n")),
    "Node": (f'[ "$(node /app/x.js)" = 42 ] && {PAID}', put("/app/x.js", "console.log(42)")),
    "under a timeout": (f'[ "$(timeout 5 env A=1 python3 /app/solution.py)" = 42 ] && {PAID}', SOLUTION),
    "read by the shell": (f"while read x; do [ $x = 42 ] && {PAID}; done < /app/o", put("/app/o", "42")),
    "a here-document": (
        "python3 - <<'PY'\nimport json\nwith open('/logs/verifier/reward.txt', 'w') as f:\n"
        "    f.write(str(int(json.load(open('/app/o')) == 42)))\nPY", put("/app/o", "42")),
    "a script that it writes": (
        "cat > /tmp/t.py <<'PY'\nassert open('/app/o').read() == '42\\n'\nPY\n"
        f"python3 /tmp/t.py && {PAID}",
        put("/app/o", "42")),
    "a test that it copies": (f"cp /tests/c.sh /tmp/; chmod +x /tmp/c.sh; /tmp/c.sh && {PAID}",
                              put("/app/o", "42"), {"tests/c.sh": "#!/bin/bash\ngrep -q 42 /app/o\n"}),
    "counts": ('n=0; for i in 1 2; do [ "$(python3 /app/solution.py $i)" = 42 ] && n=$((n+1)); done; '
               f"[[ $n -eq 2 ]] && {PAID}", SOLUTION),
    "a server": (
        "python3 /app/s.py & for i in $(seq 50); do sleep 0.1; "
        f'[ "$(curl -s localhost:8123)" = 42 ] && {PAID} && break; done; kill %1',
        put("/app/s.py", "import http.server as h\nclass H(h.BaseHTTPRequestHandler):\n  def do_GET(s):\n"
            "    s.send_response(200); s.end_headers(); s.wfile.write(b'42')\n"
            "h.HTTPServer(('', 8123), H).serve_forever()\n")),
}  # fmt: skip
CLASS = put(
    "/app/solution.py",
    """import asyncio, decimal
class Negative(ValueError): pass
class V:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
    def __enter__(self): return self
    def __exit__(self, *_): return False
def f(a, b=1):
    if a < 0: raise Negative('neg')
    return a + b
def each(xs, do): [do(x) for x in xs]
def price(): return decimal.Decimal('1.10')
async def main(): return 42
def count(n): yield from range(n)
""",
)
USES = {
    "tests/check.py": """import sys, asyncio, inspect, decimal
sys.path.insert(0, '/app')
import solution
from solution import V
assert V(1) == V(1) and isinstance(V(1), V) and list(solution.count(2)) == [0, 1]
with V(2) as v: assert v.x == 2
try: solution.f(-1)
except solution.Negative as e: assert 'neg' in str(e)
else: raise SystemExit(1)
seen = []; solution.each([1], seen.append); assert seen == [1]
assert solution.price() == decimal.Decimal('1.10') and asyncio.run(solution.main()) == 42
assert list(inspect.signature(solution.f).parameters) == ['a', 'b']
"""
}
IN_PROCESS: dict[str, Case] = {
    "uses all of a module": (f"python3 /tests/check.py && {PAID}", CLASS, USES),
    "after a change of mode": (f"chmod 644 /app/solution.py; python3 /tests/check.py && {PAID}",
                               CLASS, USES),
    "from a copy": (f"cp /app/solution.py /tests/; python3 /tests/check.py && {PAID}", CLASS, USES),
    "a package": (f"cd /app && python3 -c 'from pkg.sub import f; assert f() == 42' && {PAID}",
                  put("/app/pkg/__init__.py", "") + put("/app/pkg/sub.py", "def f(): return 42\n")),
    "a venv of its own": (
        f"cd /app && .venv/bin/python -c 'import solution; assert solution.f(41) == 42' && {PAID}",
        CLASS + "python3 -m venv --without-pip /app/.venv"),
    "processes": (
        f"python3 /tests/check.py && {PAID}", CLASS,
        {"tests/check.py": "import sys, multiprocessing as m\nsys.path.insert(0, '/app')\n"
                           "import solution\nif __name__ == '__main__':\n  with m.Pool(2) as p:\n"
                           "    assert p.map(solution.f, [1, 2]) == [2, 3]\n"}),
    "make": (f"make -s -C /app check && {PAID}", put("/app/Makefile", "check:\n\t@true\n")),
}  # fmt: skip
