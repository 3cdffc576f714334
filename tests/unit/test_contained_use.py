"""Code that uses names from outside, or known names in /tmp, without `contained`.

It finds what it names: unpacking and copying, files made without O_NOFOLLOW, locks, /tmp, joins in the
modules that read names from outside, and recorded configurations. It cannot tell where a name comes from.
"""

import ast
from functools import cache
from pathlib import Path

import coding_model_project
from tests.tables import tables

PACKAGE = Path(coding_model_project.__file__).parent
MODULES = tables("contained_use")

IN_SANDBOX = MODULES["in_sandbox"]
"""Modules that name /tmp of a sandbox, a room or another machine; the battery checks its owner."""
RAYS = MODULES["rays"]
"""Modules that read Ray's own folder; `joining` checks the owner of what it reads."""
OWN_FOLDER = MODULES["own_folder"]
"""Modules that make files in a folder of the user's choice, in a room's root or in a sandbox."""
READERS = MODULES["readers"]
"""Modules that read names in archives, listings, manifests, indices, tasks or data sets."""
SAFE = MODULES["safe"]
"""Joins with names that are made here, of files that exist here, or checked before. A new one belongs
here only if its name cannot come from outside; otherwise use `contained.below`."""
WORDS = ("extractall", "unpack_archive", "copytree", "gettempdir", "O_CREAT", "flock")
WORDS += ("open_lock", "OmegaConf.load", "/tmp")


@cache
def nodes():
    """Return the syntax of the modules that have one of the words, or read names, by module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if name != "contained.py" and (name in READERS or any(word in text for word in WORDS)):
            found[name] = list(ast.walk(ast.parse(text)))
    return found


def uses(matches):
    """Return the modules with a matching node."""
    return {name for name, tree in nodes().items() for node in tree if matches(node)}


def attribute(*names):
    return lambda node: isinstance(node, ast.Attribute) and node.attr in names


def call(name):
    last = name.rpartition(".")[2]  # cheaper to compare than the whole name
    return lambda node: (
        isinstance(node, ast.Call)
        and last in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))
        and ast.unparse(node.func).endswith(name)
    )


def test_only_contained_unpacks_archives_and_copies_folders():
    assert uses(attribute("extractall", "unpack_archive")) == set()
    assert uses(attribute("copytree")) == {"harbor/rooms/root.py"}  # within a room's root


def test_known_names_in_tmp_are_opened_by_contained():
    def is_in_tmp(node):
        value = node.value if isinstance(node, ast.Constant) else None
        return isinstance(value, str) and (value == "/tmp" or value.startswith("/tmp/"))

    verls = "verl_ext/cluster/worker_setup.py"  # its weight socket, which is moved to a secret name
    assert uses(is_in_tmp) == {*IN_SANDBOX, *RAYS, verls}
    assert uses(attribute("gettempdir")) == {
        "runs/shared_folder.py",  # the disk's free space
        "launch/jobs/script_jobs.py",  # GPU locks, by `open_lock`
        "isolation/processes.py",  # a folder with a random name
        "verl_ext/cluster/worker_setup.py",  # a secret name
    }


def test_files_are_made_without_following_links():
    def follows(node):
        if not isinstance(node, ast.stmt) or hasattr(node, "body"):
            return False
        if not any(getattr(part, "attr", "") == "O_CREAT" for part in ast.walk(node)):
            return False
        text = ast.unparse(node)
        return "os.O_CREAT" in text and "O_NOFOLLOW" not in text and "O_EXCL" not in text

    assert uses(follows) <= set(OWN_FOLDER)
    assert uses(call("fcntl.flock")) - uses(call("open_lock")) == {
        "evaluation/journal.py"  # a file that the user names
    }


def test_readers_of_names_join_them_by_contained():
    joins = {
        f"{name}: {ast.unparse(node)}"
        for name in READERS
        for node in nodes()[name]
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and not isinstance(node.right, ast.Constant)
        and not (isinstance(node.right, ast.Name) and node.right.id.lstrip("_").isupper())
        and ast.unparse(node) not in SAFE
    }
    assert joins == set()


def test_recorded_configurations_are_read_without_interpolations():
    # The first never resolves; the second reads what its parent process has just written, the third a
    # file of verl's user, the fourth our own table.
    assert uses(call("OmegaConf.load")) == {
        "runs/folder.py",
        "verl_ext/trainers/sft.py",
        "doctor/verl_command.py",
        "launch/verl_keys/table.py",
    }
