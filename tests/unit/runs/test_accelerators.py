"""GPUs are found wherever a container shows them, in file trees as its runtimes leave them."""

from pathlib import Path

import pytest

from coding_model_project.runs.accelerators import Gpu, find, measure, trainable

H100 = "NVIDIA H100 80GB HBM3"


class Tree:
    """A host's file system, as far as GPUs show in it."""

    def __init__(self, root: Path):
        self.root = root

    def file(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def driver(self, *names: str) -> None:
        for number, name in enumerate(names):
            folder = f"proc/driver/nvidia/gpus/0000:0{number}:00.0"
            self.file(f"{folder}/information", f"Model: \t\t {name}\nIRQ:   \t\t 16\n")

    def devices(self, count: int) -> None:
        for name in (*(f"nvidia{n}" for n in range(count)), "nvidiactl", "nvidia-uvm"):
            self.file(f"dev/{name}")

    def smi(self, *, listed: str = "", table: str = "", code: int = 0, folder="usr/bin") -> None:
        """A program that answers as nvidia-smi does."""
        answer = (
            f"#!/bin/sh\ncase $1 in -L) echo '{listed}';; *) echo '{table}';; esac\nexit {code}\n"
        )
        self.file(f"{folder}/nvidia-smi", answer).chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_drivers_folder_answers_without_a_program_and_else_device_files(tree):
    assert find(tree.root) == measure(tree.root) == []
    tree.devices(4)
    assert find(tree.root) == [Gpu(name="NVIDIA GPU")] * 4
    tree.driver(H100, H100)
    assert find(tree.root) == [Gpu(name=H100)] * 2


@pytest.mark.parametrize("folder", ["usr/bin", "usr/lib/wsl/lib", "usr/local/nvidia/bin"])
def test_nvidia_smi_answers_where_nothing_else_does(tree, folder, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    tree.smi(table=f"{H100}, 81559\n{H100}, 81559", folder=folder)
    found = [(gpu.name, round(gpu.memory_gb, 1)) for gpu in find(tree.root)]
    assert found == [(H100, 79.6)] * 2


def test_nvidia_smi_knows_the_memory_that_the_folder_does_not(tree):
    tree.driver("NVIDIA GB10")
    tree.smi(table="NVIDIA GB10, [N/A]")
    assert measure(tree.root) == [Gpu(name="NVIDIA GB10")]  # its memory is the host's
    tree.smi(table="No devices were found", code=6)
    assert measure(tree.root) == find(tree.root) == [Gpu(name="NVIDIA GB10")]


def test_mig_instances_take_the_place_of_their_card(tree):
    tree.driver(H100)
    for kind in ("3g.40gb", "4g.40gb"):
        tree.file(f"proc/driver/nvidia/capabilities/gpu0/mig/gi{kind[0]}/access")
    found = find(tree.root)
    assert [gpu.mig for gpu in found] == [True, True]
    listed = (
        f"GPU 0: {H100} (UUID: GPU-1)\n"
        "  MIG 4g.40gb     Device  0: (UUID: MIG-2)\n  MIG 3g.40gb     Device  1: (UUID: MIG-3)"
    )
    tree.smi(listed=listed, table=f"{H100}, 81559")
    assert measure(tree.root) == [
        Gpu(name=f"MIG {kind}", memory_gb=40, mig=True) for kind in ("4g.40gb", "3g.40gb")
    ]
    # CUDA gives a process one instance, and NCCL connects none.
    assert trainable(found, None) == 1
    assert trainable(found, "MIG-2,MIG-3") == 1


def test_a_place_that_may_not_be_read_does_not_end_the_search(tree):
    tree.driver(H100)
    file = next((tree.root / "proc").rglob("information"))
    file.unlink()
    file.mkdir()  # reading it fails, as of one without permission
    tree.devices(1)
    assert find(tree.root) == [Gpu(name="NVIDIA GPU")]


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        *((none, 0) for none in ("", "-1", "9", "NoDevFiles")),  # the last one is Slurm's
        ("3,1", 2),
        ("0,1,-1,2", 2),  # CUDA stops at the first that is none
        ("GPU-8a2b,GPU-77f0", 2),
        ("0,1,2,3,0", 4),
    ],
)
def test_visible_devices(visible, count):
    assert trainable([Gpu(name=H100)] * 4, visible) == count
    assert trainable([], visible) == 0
