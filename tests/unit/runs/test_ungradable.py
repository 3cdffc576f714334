"""What could not be judged is kept with its reason, whoever writes it and however it ends."""

from __future__ import annotations

from coding_model_project.errors import SandboxError
from coding_model_project.runs.ungradable import (
    Ungradable,
    last_reason,
    note,
    read_ungradable,
    reason_of,
)


def test_every_row_and_the_last_reason(tmp_path):
    assert last_reason(tmp_path) == ""
    rows = [
        Ungradable(
            step=step,
            problem="a/1",
            sample=f"uid_{step}",
            error="SandboxError",
            reason=reason_of(SandboxError(f"down\n{step}" + "!" * 9999)),
            at=1.0,
        )
        for step in (1, 2)
    ]
    for row in rows:
        note(tmp_path, row)
    with (tmp_path / "ungradable.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "pro')  # killed
    assert list(read_ungradable(tmp_path)) == rows
    assert last_reason(tmp_path).startswith("SandboxError: down 2!")
    assert len(last_reason(tmp_path)) < 600
