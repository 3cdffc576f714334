"""Attacks on the judge's container: the battery in it, and programs that look for each other's inputs.

    python -m tests.soak.judge_image IMAGE [ENGINE]

At both tiers that the container's options give. It needs podman or docker, and the image
(`deploy/judge/Containerfile`); `make soak` leaves it out. The last line is JSON.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.soak.sources import SOURCES

BATTERY = Path(__file__).parents[1] / "sandbox_battery" / "own.jsonl"
HARDENED = (
    *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all"),
    *("--security-opt", "no-new-privileges", "--ulimit", "nofile=4096:4096"),
    *("--ulimit", "nproc=4096:4096"),
)
TIERS = {"seccomp": (), "namespaces": ("--security-opt", "seccomp=unconfined")}

VICTIM = "import sys, time\nheld = sys.stdin.read()  # SOURCE\ntime.sleep(1.5)\nprint(len(held))"
"""A program with a secret in its input and one in its source, which runs while the thief searches."""

THIEF = SOURCES["thief"]


@contextmanager
def judge(
    engine: str, image: str, options: tuple[str, ...], token: str
) -> Iterator[tuple[str, str]]:
    """Run the judge; yield the container's id and its URL."""
    command = [engine, "run", "-d", "--rm", *HARDENED, *options, "-p", "127.0.0.1::8080"]
    command += ["-e", "CODING_SANDBOX_TOKEN", "-v", f"{BATTERY.parent}:/battery:ro", image]
    environment = {**os.environ, "CODING_SANDBOX_TOKEN": token}
    name = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, env=environment
    ).stdout.strip()
    try:
        port = _said(engine, "port", name, "8080").rpartition(":")[2].strip()
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                if httpx.get(f"{url}/v1/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        yield name, url
    finally:
        subprocess.run([engine, "stop", "--time", "70", name], stdout=subprocess.DEVNULL)


def _said(engine: str, *words: str) -> str:
    done = subprocess.run([engine, *words], text=True, stdout=subprocess.PIPE)
    return done.stdout


def steal(url: str, token: str) -> list[str]:
    """Return the inputs, sources and tokens of other programs that thieves found."""
    found: list[str] = []
    headers = {"authorization": f"Bearer {token}"}

    def run(code: str, stdin: str) -> str:
        body = {"code": code, "language": "python", "stdin": stdin, "run_timeout": 20}
        answer = httpx.post(f"{url}/run_code", json=body, headers=headers, timeout=120).json()
        return str((answer["run_result"] or {}).get("stdout"))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            secret = f"MARKED-{secrets.token_hex(16)}"
            victims = [pool.submit(run, VICTIM.replace("SOURCE", secret), secret) for _ in range(3)]
            time.sleep(0.3)
            thieves = [pool.submit(run, THIEF, "") for _ in range(3)]
            kept = [victim.result() == f"{len(secret)}\n" for victim in victims]
            found += [] if all(kept) else ["a victim did not end"]
            for said in [thief.result() for thief in thieves]:
                found += [] if "done" in said else [f"a thief did not end: {said[-200:]}"]
                found += re.findall(rf"REACHED[^\n]*|MARKED-[0-9a-f]+|{re.escape(token)}", said)
    return found


def main(image: str, engine: str = "podman") -> int:
    result: dict[str, object] = {}
    ok = True
    for tier, options in TIERS.items():
        token = secrets.token_hex(16)
        with judge(engine, image, options, token) as (name, url):
            stolen = steal(url, token)
            print(f"{tier}: thieves found {stolen or 'nothing'}", flush=True)
            inside = ("exec", name, "coding-model", "sandbox", "battery", "/battery/own.jsonl")
            lines = _said(engine, *inside, "--sandbox", "http://127.0.0.1:8080").splitlines()
            battery = json.loads(lines[-1]) if lines else {}
            print("\n".join(lines[:-1]))
        result[tier] = {**battery, "stolen": stolen}
        ok &= battery.get("tier") == tier and not battery.get("failed", [1]) and not stolen
    print(json.dumps({**result, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
