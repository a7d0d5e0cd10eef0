"""How fast images get into a node, against a plain `docker save | docker exec -i … ctr images import -`.

A gateway and images of random content in several layers are made for it and removed again. Each round pushes
one image by each way, in turn; medians are judged. The second push of the same image finds it there: whole
command against whole command, and what it takes without the start of a Python process is printed beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import measured

from holdfast.containers.engine import Engine, connect
from holdfast.containers.images import load_image
from holdfast.gateway.push import push_images
from holdfast.gateway.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = f"bench-{uuid.uuid4().hex[:6]}"
LAYERS = 4
MB = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller image")
    size = 80 * MB if parser.parse_args().quick else 300 * MB
    engine = connect()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOLDFAST_HOME": home, "HOLDFAST_WORKLOADS": "false"}
        try:
            holdfast("up", NAME)
            return measured.report(claims(engine, rounds=3, size=size))
        finally:
            holdfast("destroy", NAME, "--data", "--yes", NAME)


def claims(engine: Engine, *, rounds: int, size: int) -> Iterator[dict]:
    ours, pipe, again, inside = [], [], [], []
    for number in range(rounds):
        for way in ("ours", "pipe") if number % 2 else ("pipe", "ours"):
            image = make_image(engine, size)
            try:
                if way == "pipe":
                    pipe.append(timed(lambda name=image: piped(name)))
                else:
                    push = lambda name=image: holdfast("image", "push", name, "--gateway", NAME)  # noqa: E731
                    ours.append(timed(push))
                    again.append(timed(push))
                    inside.append(timed(lambda name=image: push_here(name)))
            finally:
                engine.client.remove_image(image, force=True)
    speeds = [size / MB / statistics.median(times) for times in (ours, pipe)]
    yield measured.claim(
        "holdfast image push, speed", speeds[0], "MB/s",
        baseline=("docker save | docker exec -i ctr images import -", speeds[1]), at_least=0.8,
        seconds=[round(each, 2) for each in ours], baseline_seconds=[round(each, 2) for each in pipe],
    )  # fmt: skip
    first = statistics.median(ours)
    yield measured.claim(
        "the same image pushed again", statistics.median(again), "s", baseline=("the first push", first),
        at_most=0.05, seconds=[round(each, 2) for each in again],
        baseline_seconds=[round(each, 2) for each in ours],
        without_python=[round(each, 2) for each in inside],
    )  # fmt: skip


def make_image(engine: Engine, size: int) -> str:
    """An image of random content that no node has seen."""
    name = f"{NAME}-{uuid.uuid4().hex[:6]}:1"
    layers = {f"{n}/layer.tar": packed({"blob": os.urandom(size // LAYERS)}) for n in range(LAYERS)}
    digests = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers.values()]
    rootfs = {"type": "layers", "diff_ids": digests}
    config = json.dumps({"architecture": engine.architecture, "os": "linux", "rootfs": rootfs}).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": list(layers)}]
    files = {**layers, "config.json": config, "manifest.json": json.dumps(manifest).encode()}
    load_image(engine, iter([packed(files)]))
    return name


def packed(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def push_here(image: str) -> None:
    push_images(Work(NAME), [image], progress=lambda *_: None)


def piped(image: str) -> None:
    """The baseline: the two commands that anybody would type."""
    importing = ["docker", "exec", "-i", f"holdfast-{NAME}", "ctr", "-n", "k8s.io", "images", "import", "-"]
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
        subprocess.run(importing, stdin=save.stdout, check=True, capture_output=True)


def holdfast(*words: str) -> None:
    script = str(Path(sys.executable).parent / "holdfast")
    subprocess.run([sys.executable, script, *words], check=True, capture_output=True)


def timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
