"""Take the pictures of the documentation: `python -m tests.browser.pictures PAGE.html OUT.png [HEIGHT]`.

PAGE is a report that a run has left, or a page of the site (`make docs`). Chromium draws its first
HEIGHT pixels (900) at a width of 1,200.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser.conftest import FLAGS

WIDTH, HEIGHT = 1200, 900
_LOAD_MS = 5000


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    page, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if not page.is_file():
        print(f"error: {page}: no such page", file=sys.stderr)
        return 2
    height = int(sys.argv[3]) if len(sys.argv) == 4 else HEIGHT
    chromium = shutil.which("chromium")
    if chromium is None:
        print("error: chromium is not installed: apt-get install -y chromium", file=sys.stderr)
        return 2
    flags = [flag for flag in FLAGS if not flag.startswith("--window-size")]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="profile-") as profile:
        command = [chromium, *flags, f"--user-data-dir={profile}", f"--screenshot={out}"]
        command += ["--hide-scrollbars", f"--window-size={WIDTH},{height}"]
        command += [f"--virtual-time-budget={_LOAD_MS}", page.as_uri()]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=120)
    print(f"the picture is {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
