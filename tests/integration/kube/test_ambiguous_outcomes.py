"""Rare ways in which a call could report what is not so, made real on a real server."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import threading
import time

import pytest
import yaml
from kubernetes import aio, client

from holdfast.errors import ApiRequestRejectedError, ObjectConflictError
from holdfast.kube import Objects, WriteOutcome, api_client, async_api_client, resilient, write_outcome
from holdfast.retry import Budget, Policy, constant
from holdfast.testing.faults import rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]


def policy(**more):
    return Policy(**{"attempts": 4, "backoff": constant(0.02), "budget": Budget(1000, burst=1000), **more})


@pytest.fixture
def core(faulty_kube):
    with api_client(faulty_kube.kubeconfig) as made:
        yield resilient(client.CoreV1Api(made), policy())


@pytest.fixture
def objects(faulty_kube):
    with api_client(faulty_kube.kubeconfig) as made:
        yield Objects(made, policy())


class CorruptingRelay:
    """A plain connection to the server that can damage what comes back."""

    def __init__(self, host, port):
        self._server, self.damages = (host, port), False
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            far = socket.create_connection(self._server)
            for source, sink, comes_back in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=(source, sink, comes_back), daemon=True).start()

    def _pump(self, source, sink, comes_back):
        try:
            while data := source.recv(65536):
                if comes_back and self.damages and len(data) > 40:
                    data = data[:30] + bytes([data[30] ^ 0xFF]) + data[31:]
                sink.sendall(data)
        except OSError:
            pass
        source.close()
        sink.close()

    def close(self):
        self._door.close()


@pytest.fixture
def relay(kube_server, tmp_path):
    config = yaml.safe_load(kube_server.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    host, port = cluster["server"].rpartition("/")[2].split(":")
    made = CorruptingRelay(host, int(port))
    cluster["server"] = f"https://127.0.0.1:{made.port}"
    made.kubeconfig = tmp_path / "relayed"
    made.kubeconfig.write_text(yaml.safe_dump(config))
    yield made
    made.close()


def test_corrupted_tls_record_after_commit_is_not_a_rejection(relay, objects, kube_namespace):
    with api_client(relay.kubeconfig) as made:
        core = resilient(client.CoreV1Api(made), policy())
        core.read_namespace(kube_namespace)
        relay.damages = True
        with pytest.raises(Exception, match=r"(?i)mac|decrypt|ssl") as caught:
            core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "damaged"}})
        relay.damages = False
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN
    assert objects.get("ConfigMap", "damaged", namespace=kube_namespace) is not None


def test_corrupted_tls_record_is_not_a_rejection_async(relay, kube_namespace):
    async def create():
        async with await async_api_client(relay.kubeconfig) as made:
            core = resilient(aio.client.CoreV1Api(made), policy())
            await core.read_namespace(kube_namespace)
            relay.damages = True
            await core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "damaged"}})

    with pytest.raises(Exception, match=r".") as caught:
        asyncio.run(create())
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN


def test_overwritten_replace_that_removed_fields_is_not_reported_done(faulty_kube, core, kube_namespace):
    body = {"metadata": {"name": "put", "finalizers": ["holdfast.dev/test"]}, "data": {"a": "1", "b": "2"}}
    core.create_namespaced_config_map(kube_namespace, body)
    sent = core.read_namespaced_config_map("put", kube_namespace)
    sent.data, sent.metadata.finalizers = {"a": "1"}, []

    def overtake(_retry):
        core.patch_namespaced_config_map("put", kube_namespace, {"metadata": {"labels": {"by": "another"}}})

    with api_client(faulty_kube.kubeconfig) as made:
        overtaken = resilient(client.CoreV1Api(made), policy(on_retry=overtake))
        with (
            faulty_kube.faults(rule("reset-before", methods="PUT", count=1)),
            pytest.raises(client.ApiException) as caught,
        ):
            overtaken.replace_namespaced_config_map("put", kube_namespace, sent)
    assert (caught.value.status, write_outcome(caught.value)) == (409, WriteOutcome.UNKNOWN)
    core.patch_namespaced_config_map("put", kube_namespace, {"metadata": {"finalizers": None}})


def test_replace_with_lost_response_is_recognized(faulty_kube, core, kube_namespace):
    core.create_namespaced_config_map(
        kube_namespace, {"metadata": {"name": "put"}, "data": {"a": "1", "b": "2"}}
    )
    sent = core.read_namespaced_config_map("put", kube_namespace)
    sent.data = {"a": "2"}
    with faulty_kube.faults(rule("reset-after", methods="PUT", count=1)):
        assert core.replace_namespaced_config_map("put", kube_namespace, sent).data == {"a": "2"}


def mutable_copy(live):
    """An object as it is read, made ready to be created again, as backups and clones do."""
    body = copy.deepcopy(live)
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        body["metadata"].pop(field, None)
    return body


def test_modified_copy_of_existing_object_is_not_taken_as_created(core, objects, kube_namespace):
    objects.ensure(
        {"kind": "ConfigMap", "metadata": {"name": "original"}, "data": {"a": "1"}}, namespace=kube_namespace
    )
    edited = mutable_copy(objects.get("ConfigMap", "original", namespace=kube_namespace))
    edited["data"] = {"a": "2"}
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_config_map(kube_namespace, edited)
    assert (caught.value.status, write_outcome(caught.value)) == (409, WriteOutcome.NOT_DONE)
    with pytest.raises(ObjectConflictError, match=r"differs in data\.a"):
        objects.ensure(edited)
    with pytest.raises(ObjectConflictError):
        objects.create(edited)


POD = {
    "containers": [{"name": "a", "image": "a", "tty": False, "stdin": False, "ports": [{"containerPort": 1}]}]
}
REPEATED_WRITES = {
    "pod": {
        "kind": "Pod",
        "spec": {
            "hostNetwork": False,
            "containers": [{"name": "a", "image": "a", "resources": {"limits": {"cpu": 0.5, "memory": 1e9}}}],
        },
    },
    "pod with tty": {"kind": "Pod", "spec": POD},
    "deployment": {
        "kind": "Deployment",
        "spec": {
            "minReadySeconds": 0,
            "paused": False,
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD},
        },
    },
    "service": {"kind": "Service", "spec": {"publishNotReadyAddresses": False, "ports": [{"port": 80}]}},
}


@pytest.mark.parametrize("body", REPEATED_WRITES.values(), ids=REPEATED_WRITES)
def test_repeated_write_is_unchanged(objects, kube_namespace, body):
    body = {**body, "metadata": {"name": "twice"}}
    assert objects.ensure(body, namespace=kube_namespace).effect == "created"
    assert objects.ensure(body, namespace=kube_namespace).effect == "unchanged"


def test_meaningful_zero_differs_from_unset(objects, kube_namespace):
    spec = {"containers": [{"name": "a", "image": "a"}]}
    objects.ensure({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, namespace=kube_namespace)
    stricter = {"containers": [{"name": "a", "image": "a", "securityContext": {"runAsUser": 0}}]}
    with pytest.raises(ObjectConflictError, match="runAsUser"):
        objects.ensure({"kind": "Pod", "metadata": {"name": "p"}, "spec": stricter}, namespace=kube_namespace)


def test_api_objects_of_one_client_share_refresh(faulty_kube, kube_namespace):
    refreshed = []

    def refresh():
        refreshed.append(1)
        time.sleep(0.3)

    with api_client(faulty_kube.kubeconfig) as made:
        core = resilient(client.CoreV1Api(made), policy(), refresh_credentials=refresh)
        apps = resilient(client.AppsV1Api(made), policy(), refresh_credentials=refresh)
        threads = [
            threading.Thread(target=core.list_namespaced_config_map, args=(kube_namespace,)),
            threading.Thread(target=apps.list_namespaced_deployment, args=(kube_namespace,)),
        ]
        with faulty_kube.faults(rule("unauthorized", count=2)):
            for each in threads:
                each.start()
            for each in threads:
                each.join()
    assert len(refreshed) == 1


def test_forked_child_opens_new_connections(core, objects, kube_namespace):
    for number in range(5):
        core.read_namespace(kube_namespace)
        child = os.fork()
        if child == 0:
            try:
                core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": f"child-{number}"}})
            except BaseException:  # noqa: BLE001 - a child must end here, whatever happens
                os._exit(1)
            os._exit(0)
        core.read_namespace(kube_namespace)
        assert os.waitpid(child, 0)[1] == 0
        assert objects.get("ConfigMap", f"child-{number}", namespace=kube_namespace) is not None


def test_untrusted_server_certificate_is_reported(kube_server, kube_namespace, tmp_path):
    config = yaml.safe_load(kube_server.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "foreign"
    path.write_text(yaml.safe_dump(config))
    with api_client(path) as made, pytest.raises(ApiRequestRejectedError, match="ConfigMap") as caught:
        Objects(made, policy()).get("ConfigMap", "a", namespace=kube_namespace)
    assert "certificate authority" in caught.value.hint
