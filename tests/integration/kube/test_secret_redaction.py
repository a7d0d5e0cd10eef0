"""No part of a Secret and no token in any log line, event or exception, whatever goes wrong."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import traceback

import pytest
from kubernetes import aio, client, config

from holdfast.errors import HoldfastError
from holdfast.kube import AsyncObjects, Objects, env_secret, resilient
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

VALUE, TOKEN = "hunter2-do-not-tell", "t0ken-do-not-tell"
ENCODED = base64.b64encode(VALUE.encode()).decode()
FAULTS = [
    "reset-after",
    "truncated",
    "wrong-content-type",
    "invalid-utf8",
    "html",
    "leader-changed",
    Fault(kind="gateway-timeout", commit=True),
    Fault(kind="stall-body", seconds=0.1),
    "unavailable",
    "unauthorized",
]
IDS = [fault if isinstance(fault, str) else fault.kind for fault in FAULTS]


def exception_text(error):
    """All that can be shown of an error and of what is behind it."""
    shown = ["".join(traceback.format_exception(error))]
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if callable(getattr(error, "errors", None)):
            shown.append(repr(error.errors()))  # pydantic keeps what it was given
        shown += [
            str(error),
            repr(error),
            repr(error.args),
            repr(vars(error)),
            repr(getattr(error, "hint", "")),
        ]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


@pytest.fixture
def captured_logs_and_events():
    """Everything that is logged at any level, and every event."""
    stream, events = io.StringIO(), []
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream, events
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def policy(events):
    return Policy(
        attempts=3,
        deadline=20,
        backoff=exponential(0.01, cap=0.05),
        budget=Budget(1000, burst=1000),
        on_retry=events.append,
    )


def run_sync_calls(path, terms, work):
    with config.new_client_from_config(str(path)) as made:
        made.configuration.api_key = {"BearerToken": f"Bearer {TOKEN}"}
        work(resilient(client.CoreV1Api(made), terms), Objects(made, terms))


def run_async_calls(path, terms, work):
    async def main():
        async with await aio.config.new_client_from_config(str(path)) as made:
            made.configuration.api_key = {"BearerToken": f"Bearer {TOKEN}"}
            await work(resilient(aio.client.CoreV1Api(made), terms), AsyncObjects(made, terms))

    asyncio.run(main())


def request_bodies(namespace):
    good = env_secret("a", {"PASSWORD": VALUE})
    return {
        "plain": lambda api, _: api.create_namespaced_secret(namespace, good),
        "helper": lambda _, objects: objects.ensure(good, namespace=namespace),
        "patch": lambda api, _: api.patch_namespaced_secret("a", namespace, {"data": {"PASSWORD": ENCODED}}),
        "apply": lambda _, objects: objects.apply(good, namespace=namespace),
        "read": lambda api, _: api.read_namespaced_secret("a", namespace),
        "refused": lambda api, _: api.create_namespaced_secret(
            namespace, {"metadata": {"name": "b"}, "data": {"PASSWORD": VALUE}}
        ),
        "refused helper": lambda _, objects: objects.ensure(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}, "data": {"P": VALUE}},
            namespace=namespace,
        ),
    }


@pytest.mark.parametrize("run", [run_sync_calls, run_async_calls])
@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
@pytest.mark.parametrize("count", [1, None])
def test_no_secret_in_logs_events_or_exceptions(
    faulty_kube, kube_namespace, captured_logs_and_events, run, fault, count
):
    stream, events = captured_logs_and_events
    errors = []

    def one_by_one(api, objects):
        for call in request_bodies(kube_namespace).values():
            with faulty_kube.faults(rule(fault, path="secrets", count=count)):
                yield lambda call=call: call(api, objects)

    def work(api, objects):
        for call in one_by_one(api, objects):
            try:
                call()
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

    async def awork(api, objects):
        for call in one_by_one(api, objects):
            try:
                await call()
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

    run(faulty_kube.kubeconfig, policy(events), work if run is run_sync_calls else awork)
    shown = "\n".join([stream.getvalue(), repr(events), *map(exception_text, errors)])
    assert errors
    for secret in (VALUE, ENCODED, TOKEN):
        where = shown.find(secret)
        assert where < 0, shown[max(0, where - 300) : where + 100]


def test_objects_raise_only_holdfast_errors(faulty_kube, kube_namespace, captured_logs_and_events):
    with config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
        objects = Objects(made, policy([]))
        for fault in FAULTS:
            with faulty_kube.faults(rule(fault, path="secrets")):
                try:
                    objects.ensure(env_secret("x", {"A": VALUE}), namespace=kube_namespace)
                except HoldfastError:
                    continue
