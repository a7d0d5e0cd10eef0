"""Ctrl-C and cancellation end a call that waits; nothing swallows them, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from kubernetes import aio

from holdfast.kube import resilient
from holdfast.retry import Budget, Policy, constant
from holdfast.testing.faults import Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]


def wait_for_request(log):
    """Wait until the proxy has seen a request, and a moment longer."""
    deadline = time.monotonic() + 30
    while not len(log) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    threading.Event().wait(0.1)


LONG_RETRY_POLICY = Policy(attempts=None, deadline=600, backoff=constant(300), budget=Budget(100))


@pytest.mark.parametrize("fault", ["unavailable", "stall-headers"])
def test_ctrl_c_interrupts_sleep_and_request(faulty_kube, kube_namespace, fault):
    program = f"""
        from kubernetes import client, config
        from holdfast import Policy, resilient
        from holdfast.retry import constant
        with config.new_client_from_config({str(faulty_kube.kubeconfig)!r}) as made:
            policy = Policy(attempts=None, deadline=600, backoff=constant(300))
            api = resilient(client.CoreV1Api(made), policy, timeout=300)
            print("ready", flush=True)
            api.create_namespaced_config_map({kube_namespace!r}, {{"metadata": {{"name": "a"}}}})
    """
    with faulty_kube.faults(rule(fault, **({"seconds": 60} if fault == "stall-headers" else {}))) as log:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline() == "ready\n"
            wait_for_request(log)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
    assert "KeyboardInterrupt" in said
    assert time.monotonic() - began < 10
    assert len(log) == 1


@pytest.mark.parametrize("fault", ["unavailable", "stall-headers"])
def test_task_cancellation_ends_request(faulty_kube, kube_namespace, fault):
    async def main():
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            api = resilient(aio.client.CoreV1Api(made), LONG_RETRY_POLICY, timeout=300)
            body = {"metadata": {"name": "a"}}
            task = asyncio.ensure_future(api.create_namespaced_config_map(kube_namespace, body))
            await asyncio.to_thread(wait_for_request, log)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 5
            with faulty_kube.faults():
                await api.create_namespaced_config_map(kube_namespace, body)

    with faulty_kube.faults(rule(fault, **({"seconds": 60} if fault == "stall-headers" else {}))) as log:
        asyncio.run(main())


def test_failed_responses_leave_no_open_connection(faulty_kube, kube_namespace, caplog):
    async def main():
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            policy = Policy(attempts=1, deadline=30, budget=Budget(100))
            api = resilient(aio.client.CoreV1Api(made), policy, timeout=1.0)
            for _ in range(4):
                with contextlib.suppress(Exception):
                    await api.list_namespaced_config_map(kube_namespace)
            gc.collect()

    for fault in (
        Fault(kind="truncated"),
        Fault(kind="stall-body", seconds=0.1),
        Fault(kind="stall-body", seconds=5),
    ):
        with faulty_kube.faults(rule(fault)), caplog.at_level("DEBUG"):
            asyncio.run(main())
    gc.collect()
    assert "Unclosed" not in caplog.text
