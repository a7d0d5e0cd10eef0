"""Delete the finished pods of a namespace: an existing tool, made safe against failures in three lines.

Without them, a lost response ends the tool with an error although the pod is deleted, an API server that
restarts ends it immediately, and one that hangs blocks it for ever.
"""

from __future__ import annotations

import argparse

from kubernetes import client, config

from holdfast import resilient  # line 1: retries
from holdfast.retry import Deadline

FINISHED = {"Succeeded", "Failed"}


def delete_finished_pods(core: client.CoreV1Api, namespace: str) -> list[str]:
    """Delete the pods that have finished; return their names."""
    deleted = []
    for pod in core.list_namespaced_pod(namespace).items:
        name = pod.metadata.name if pod.metadata else None
        if name and pod.status and pod.status.phase in FINISHED:
            core.delete_namespaced_pod(name, namespace)
            deleted.append(name)
    return deleted


def main() -> None:
    parser = argparse.ArgumentParser(description="Delete finished pods.")
    parser.add_argument("namespace")
    options = parser.parse_args()
    config.load_kube_config()  # type: ignore[no-untyped-call]
    core = client.CoreV1Api()
    core = resilient(core)  # line 2: the same type, with retries
    with Deadline.after(300):  # line 3: a limit for all calls and their retries
        for name in delete_finished_pods(core, options.namespace):
            print(f"deleted {name}")


if __name__ == "__main__":
    main()
