"""Shell scripts that environments run, for any POSIX shell; all as root."""

FURNISH = """mkdir -p /logs/agent /logs/verifier /logs/artifacts /solution "$0"
chmod 777 /logs /logs/*"""
"""Makes the folders that every environment has, and the working directory, which is $0."""

ANEW = """cd /
rm -rf tests .pytest.ini conftest.py pyproject.toml pytest.ini setup.cfg setup.py tox.ini
[ -d /logs ] && [ ! -L /logs ] || rm -rf /logs
rm -rf /logs/verifier; mkdir -p /tests /logs/verifier && chmod 755 /tests && chmod 777 /logs/verifier
[ ! -L /tests ] && [ -z "$(ls -A /tests)" ] && [ -z "$(ls -A /logs/verifier)" ]"""
"""Makes /tests and /logs/verifier anew, and takes away what pytest would read from the root."""

PROCESSES = "cd /proc && echo [0-9]*"
"""Prints the numbers of all processes."""

END_OTHERS = """keep=" 1 $0 "; p=$$
while [ "${p:-0}" -gt 1 ]; do keep="$keep$p "; p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$p/status"); done
for round in 1 2 3; do for one in /proc/[0-9]*; do p=${one#/proc/}
case "$keep" in *" $p "*) ;; *) kill -9 "$p" 2> /dev/null;; esac; done; done; true"""
"""Kills all that it sees but the first process, those whose numbers are $0, and what started it."""
