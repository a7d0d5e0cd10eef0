"""Speed of `holdfast image push`, compared with `docker save | docker exec -i … ctr images import -`.

The benchmark creates a gateway and images of random content in several layers, and removes them. Each round
pushes one image with each method, in alternating order, and compares the medians. It also measures the second
push of the same image, as a command and without the start of a Python process.
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

from holdfast.containers import ContainerEngine, load_image
from holdfast.gateway import GatewayContext
from holdfast.gateway.image_push.push import push_images
from holdfast.remote import connect

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


def claims(engine: ContainerEngine, *, rounds: int, size: int) -> Iterator[dict]:
    pushes, pipes, repeats, in_process = [], [], [], []
    for number in range(rounds):
        for method in ("push", "pipe") if number % 2 else ("pipe", "push"):
            image = create_image(engine, size)
            try:
                if method == "pipe":
                    pipes.append(measure(lambda name=image: pipe_image(name)))
                else:
                    push = lambda name=image: holdfast("image", "push", name, "--gateway", NAME)  # noqa: E731
                    pushes.append(measure(push))
                    repeats.append(measure(push))
                    in_process.append(measure(lambda name=image: push_in_process(name)))
            finally:
                engine.client.remove_image(image, force=True)
    speeds = [size / MB / statistics.median(times) for times in (pushes, pipes)]
    yield measured.claim(
        "holdfast image push, speed", speeds[0], "MB/s",
        baseline=("docker save | docker exec -i ctr images import -", speeds[1]), at_least=0.8,
        seconds=round_all(pushes), baseline_seconds=round_all(pipes),
    )  # fmt: skip
    first = statistics.median(pushes)
    yield measured.claim(
        "the same image pushed again", statistics.median(repeats), "s", baseline=("the first push", first),
        at_most=0.05, seconds=round_all(repeats),
        baseline_seconds=round_all(pushes),
        without_python=round_all(in_process),
    )  # fmt: skip


def create_image(engine: ContainerEngine, size: int) -> str:
    """Load an image of random content into the engine and return its name."""
    name = f"{NAME}-{uuid.uuid4().hex[:6]}:1"
    layers = {f"{n}/layer.tar": pack_tar({"blob": os.urandom(size // LAYERS)}) for n in range(LAYERS)}
    digests = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers.values()]
    rootfs = {"type": "layers", "diff_ids": digests}
    config = json.dumps({"architecture": engine.architecture, "os": "linux", "rootfs": rootfs}).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": list(layers)}]
    files = {**layers, "config.json": config, "manifest.json": json.dumps(manifest).encode()}
    load_image(engine, iter([pack_tar(files)]))
    return name


def pack_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def push_in_process(image: str) -> None:
    push_images(GatewayContext(NAME), [image], progress=lambda *_: None)


def pipe_image(image: str) -> None:
    """The baseline: save and import with two shell commands."""
    command = ["docker", "exec", "-i", f"holdfast-{NAME}", "ctr", "-n", "k8s.io", "images", "import", "-"]
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
        subprocess.run(command, stdin=save.stdout, check=True, capture_output=True)


def holdfast(*arguments: str) -> None:
    script = str(Path(sys.executable).parent / "holdfast")
    subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True)


def measure(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def round_all(seconds: list[float]) -> list[float]:
    return [round(value, 2) for value in seconds]


if __name__ == "__main__":
    sys.exit(main())
