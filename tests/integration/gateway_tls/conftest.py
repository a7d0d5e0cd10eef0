"""One gateway's cluster steps against a real API server, with faults in front of it; no container engine."""

from __future__ import annotations

import datetime as dt
import json
import shutil

import pytest

from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.pki import SECRET_TYPES, from_secret_data, validate_bundle
from holdfast.workflow import SQLiteStore, Step, Workflow, done

NAMES = ["localhost", "127.0.0.1"]


class ClusterSteps:
    """A gateway of which only the cluster is real: its steps, and what the server has after them."""

    def __init__(self, server, kubeconfig, home, namespace) -> None:
        self.server = server
        self.namespace = namespace
        self.home = home
        self.gateway = GatewayContext(
            "bench", resolve_settings({"namespace": namespace, "attempts.apply": 5})
        )
        self.gateway.files.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kubeconfig, self.gateway.files.kubeconfig)
        self.gateway.__dict__["spec"] = GatewaySpec(name="bench", image="-", port=1, gateway_port=2)
        self.events = []

    def run(self, *kinds, gateway=None):
        """Run steps with a store of their own; what stands before them in the plan counts as done."""
        steps = [kind(gateway or self.gateway) for kind in kinds]
        there = {step.name for step in steps}
        before = {need for step in steps for need in step.needs} - there
        stand_ins = [
            Step(name, run=lambda ctx: None, probe=lambda ctx: done("there")) for name in sorted(before)
        ]
        return Workflow("bench", [*stand_ins, *steps]).run(
            store=SQLiteStore(self.home / "state.db"), bus=EventBus(self.events.append)
        )

    def secret(self, name):
        status, found = self.server.request("GET", self.path(name))
        return found if status == 200 else None

    def path(self, name=""):
        return f"/api/v1/namespaces/{self.namespace}/secrets/{name}".rstrip("/")

    def secrets(self):
        return {name: self.secret(name) for name in SECRET_TYPES}

    def put(self, bundle_data, types=SECRET_TYPES):
        """Write Secrets as another client."""
        for name, data in bundle_data.items():
            self.server.request("DELETE", self.path(name))
            body = {"metadata": {"name": name}, "type": types[name], "data": data}
            status, answer = self.server.request("POST", self.path(), body)
            assert status == 201, answer

    def judgement(self):
        """What the server has now, judged; exactly one consistent bundle or not."""
        stored = from_secret_data({name: found and found["data"] for name, found in self.secrets().items()})
        return validate_bundle(stored, names=NAMES, at=dt.datetime.now(dt.UTC))

    def versions(self):
        return {
            name: (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
            for name, found in self.secrets().items()
        }

    def note(self, step):
        return next(event.note for event in reversed(self.events) if getattr(event, "step", "") == step)

    def told(self):
        """All events, results and records as one text."""
        import msgspec

        said = "\n".join(msgspec.json.encode(event).decode() for event in self.events)
        kept = "".join(path.read_bytes().decode("latin-1") for path in self.home.glob("state.db*"))
        return json.dumps(said) + kept


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def cluster_steps(kube_server, faulty_kube, kube_namespace, home):
    """The steps go through the fault proxy; the looks go around it."""
    return ClusterSteps(kube_server, faulty_kube.kubeconfig, home, kube_namespace)
