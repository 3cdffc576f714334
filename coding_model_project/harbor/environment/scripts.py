"""Shell scripts that environments run as root, for any POSIX shell."""

FURNISH = """mkdir -p /logs/agent /logs/verifier /logs/artifacts /solution "$0"
chmod 777 /logs /logs/*"""
"""A script that makes the folders of every environment, and the working directory $0."""

ANEW = """cd /
rm -rf tests .pytest.ini conftest.py pyproject.toml pytest.ini setup.cfg setup.py tox.ini
[ -d /logs ] && [ ! -L /logs ] || rm -rf /logs
rm -rf /logs/verifier; mkdir -p /tests /logs/verifier && chmod 755 /tests && chmod 777 /logs/verifier
[ ! -L /tests ] && [ -z "$(ls -A /tests)" ] && [ -z "$(ls -A /logs/verifier)" ]"""
"""A script that recreates /tests and /logs/verifier, and removes pytest's configuration in the root."""

PROCESSES = "cd /proc && echo [0-9]*"
"""A script that prints all process ids."""

SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2> /dev/null; true"
"""A script that prints all TCP sockets."""

END_OTHERS = """keep=" 1 $0 "; p=$$
while [ "${p:-0}" -gt 1 ]; do keep="$keep$p "; p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$p/status"); done
for round in 1 2 3; do for one in /proc/[0-9]*; do p=${one#/proc/}
case "$keep" in *" $p "*) ;; *) kill -9 "$p" 2> /dev/null;; esac; done; done; true"""
"""A script that kills all visible processes except the first, those with ids in $0, and its ancestors."""

KIND = (
    'if [ -d "$0" ]; then echo d; elif [ -x "$0" ]; then echo x; elif [ -f "$0" ]; then echo f; fi'
)
"""A script that prints whether $0 is a folder (d), a program (x) or another file (f)."""

PACK = """packed=$0; mkdir -p "${packed%/*}"; cd "$1" || exit 1; shift; [ $# = 0 ] && set -- .
for one in "$@"; do shift; if [ -e "$one" ] || [ -L "$one" ]; then set -- "$@" "$one"; fi; done
[ $# = 0 ] || tar -cf "$packed" -- "$@" """
"""A script that packs the folder $1, or these names in it, into a new tar file $0 and its folder."""

UNPACK = 'mkdir -p "$1" && tar -xmf "$0" -C "$1"'
"""A script that unpacks the tar file $0 over the folder $1."""
