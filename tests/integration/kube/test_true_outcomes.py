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

from holdfast.errors import ClusterRefusedError, ObjectConflictError
from holdfast.kube import Done, Objects, api_client, async_api_client, outcome_of, resilient
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


class Relay:
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
    made = Relay(host, int(port))
    cluster["server"] = f"https://127.0.0.1:{made.port}"
    made.kubeconfig = tmp_path / "relayed"
    made.kubeconfig.write_text(yaml.safe_dump(config))
    yield made
    made.close()


def test_a_damaged_record_after_a_commit_is_no_refusal(relay, objects, kube_namespace):
    with api_client(relay.kubeconfig) as made:
        core = resilient(client.CoreV1Api(made), policy())
        core.read_namespace(kube_namespace)
        relay.damages = True
        with pytest.raises(Exception, match=r"(?i)mac|decrypt|ssl") as caught:
            core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "damaged"}})
        relay.damages = False
    assert outcome_of(caught.value) is Done.UNKNOWN
    assert objects.get("ConfigMap", "damaged", namespace=kube_namespace) is not None


def test_a_damaged_record_in_tasks_is_no_refusal_either(relay, kube_namespace):
    async def create():
        async with await async_api_client(relay.kubeconfig) as made:
            core = resilient(aio.client.CoreV1Api(made), policy())
            await core.read_namespace(kube_namespace)
            relay.damages = True
            await core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "damaged"}})

    with pytest.raises(Exception, match=r".") as caught:
        asyncio.run(create())
    assert outcome_of(caught.value) is Done.UNKNOWN


def test_a_replace_that_was_overtaken_does_not_pass_for_done_because_it_took_something_away(
    faulty_kube, core, kube_namespace
):
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
    assert (caught.value.status, outcome_of(caught.value)) == (409, Done.UNKNOWN)
    core.patch_namespaced_config_map("put", kube_namespace, {"metadata": {"finalizers": None}})


def test_a_replace_whose_answer_was_lost_is_found_done(faulty_kube, core, kube_namespace):
    core.create_namespaced_config_map(
        kube_namespace, {"metadata": {"name": "put"}, "data": {"a": "1", "b": "2"}}
    )
    sent = core.read_namespaced_config_map("put", kube_namespace)
    sent.data = {"a": "2"}
    with faulty_kube.faults(rule("reset-after", methods="PUT", count=1)):
        assert core.replace_namespaced_config_map("put", kube_namespace, sent).data == {"a": "2"}


def copied(live):
    """An object as it is read, made ready to be created again, as backups and clones do."""
    body = copy.deepcopy(live)
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        body["metadata"].pop(field, None)
    return body


def test_an_edited_copy_of_an_object_that_is_there_is_not_taken_for_it(core, objects, kube_namespace):
    objects.ensure(
        {"kind": "ConfigMap", "metadata": {"name": "original"}, "data": {"a": "1"}}, namespace=kube_namespace
    )
    edited = copied(objects.get("ConfigMap", "original", namespace=kube_namespace))
    edited["data"] = {"a": "2"}
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_config_map(kube_namespace, edited)
    assert (caught.value.status, outcome_of(caught.value)) == (409, Done.NO)
    with pytest.raises(ObjectConflictError, match=r"differs in data\.a"):
        objects.ensure(edited)
    with pytest.raises(ObjectConflictError):
        objects.create(edited)


POD = {
    "containers": [{"name": "a", "image": "a", "tty": False, "stdin": False, "ports": [{"containerPort": 1}]}]
}
TWICE = {
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


@pytest.mark.parametrize("body", TWICE.values(), ids=TWICE)
def test_the_same_twice_is_unchanged(objects, kube_namespace, body):
    body = {**body, "metadata": {"name": "twice"}}
    assert objects.ensure(body, namespace=kube_namespace).did == "created"
    assert objects.ensure(body, namespace=kube_namespace).did == "unchanged"


def test_a_zero_that_means_something_is_told_from_nothing(objects, kube_namespace):
    spec = {"containers": [{"name": "a", "image": "a"}]}
    objects.ensure({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, namespace=kube_namespace)
    stricter = {"containers": [{"name": "a", "image": "a", "securityContext": {"runAsUser": 0}}]}
    with pytest.raises(ObjectConflictError, match="runAsUser"):
        objects.ensure({"kind": "Pod", "metadata": {"name": "p"}, "spec": stricter}, namespace=kube_namespace)


def test_one_refresh_for_all_api_objects_of_a_client(faulty_kube, kube_namespace):
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


def test_a_forked_child_has_connections_of_its_own(core, objects, kube_namespace):
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


def test_who_does_not_trust_the_server_is_told_so(kube_server, kube_namespace, tmp_path):
    config = yaml.safe_load(kube_server.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "foreign"
    path.write_text(yaml.safe_dump(config))
    with api_client(path) as made, pytest.raises(ClusterRefusedError, match="ConfigMap") as caught:
        Objects(made, policy()).get("ConfigMap", "a", namespace=kube_namespace)
    assert "certificate authority" in caught.value.hint
