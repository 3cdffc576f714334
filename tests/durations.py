"""Where the time of the tests goes: wall and CPU seconds by group, and the longest tests.

python -m tests.durations [FILE.xml ...]     default: what `make test` wrote to outputs/tests

A test's seconds include those of the fixtures that it was the first to need. CPU seconds are those of the
test's process and of all that it started, whether it has ended or not.
"""

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

from coding_model_project.errors import ConfigError

WRITTEN = Path("outputs/tests")
_LONGEST = 40


def read(paths: list[Path]) -> list[tuple[str, str, float, float]]:
    """Return group, name, wall seconds and CPU seconds of each test."""
    found = []
    for path in paths:
        for case in ET.parse(path).iter("testcase"):
            module = case.get("classname", "").removeprefix("tests.")
            cpu_s = (p.get("value") for p in case.iter("property") if p.get("name") == "cpu_s")
            group = ".".join(module.split(".")[: 2 if module.startswith("unit.") else 1])
            name = f"{module.rpartition('.')[2]}: {case.get('name')}"
            found.append((group, name, float(case.get("time", 0)), float(next(cpu_s, 0))))
    return found


def main(arguments: list[str]) -> int:
    paths = [Path(one) for one in arguments] or sorted(WRITTEN.glob("*.xml"))
    if not paths:
        raise ConfigError(f"{WRITTEN}: no durations; `make test` writes them")
    tests = read(paths)
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for group, _, wall_s, cpu_s in tests:
        groups[group].append((wall_s, cpu_s))
    groups["all"] = [(wall_s, cpu_s) for _, _, wall_s, cpu_s in tests]
    print("| group | tests | wall s | CPU s |\n|---|---|---|---|")
    for group, seconds in sorted(groups.items(), key=lambda item: -sum(s for s, _ in item[1])):
        wall_s, cpu_s = map(sum, zip(*seconds, strict=True))
        print(f"| {group} | {len(seconds):,} | {wall_s:,.0f} | {cpu_s:,.0f} |")
    print("\n| longest tests | wall s | CPU s |\n|---|---|---|")
    for _, name, wall_s, cpu_s in sorted(tests, key=lambda test: -test[2])[:_LONGEST]:
        print(f"| {name} | {wall_s:.0f} | {cpu_s:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
