"""Planted secrets and real keys, looked for in all that holdfast prints, keeps, runs and gives the engine.

One gateway with its own workloads is made with a registry's login, while every process of the machine is
watched. Then its keys are collected from where they belong, and searched for everywhere else.
"""

import base64
import json
import os
import subprocess
import tarfile
import threading
import uuid
from collections import Counter
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast.containers import read_file, run_in_container
from holdfast.pki import ClientCertificateStore
from holdfast.remote import connect

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root sees every process and the gateway's volume"),
]

STATE = "/var/lib/holdfast"
SAMPLES_PER_PROCESS = 10
"""Number of checks per process: after half a second its arguments no longer change."""

KINDS = "pods,deployments,daemonsets,configmaps,events,nodes,services,crd,sandboxes.agents.x-k8s.io"


class ProcessWatcher:
    """Reads what any process shows of itself while it is young, until told to stop."""

    def __enter__(self):
        self.shown: set[bytes] = set()
        self._looks: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                self._looks[process.name] += 1
                if self._looks[process.name] <= SAMPLES_PER_PROCESS:
                    self._look(process)

    def _look(self, process):
        for part in ("cmdline", "environ"):
            with suppress(OSError):
                self.shown.add((process / part).read_bytes())


class SecretsGateway:
    """The gateway, what was heard while it was made, and the secrets in it."""

    def __init__(self, gateway, password, processes):
        self.gateway, self.password, self.processes = gateway, password, processes
        self.folder = gateway.holdfast.home / "config" / "gateways" / gateway.name
        self.observed_conditions: list[str] = []
        self.mounted, self.variable = (f"planted-{uuid.uuid4().hex}" for _ in range(2))

    def use_in_sandbox(self):
        """Create, replace and use secrets of a sandbox, which fails once and is suspended and resumed."""
        self.run("secret", "create", "files", stdin=f"KEY={self.mounted}\n")
        self.run("secret", "create", "files", "--replace", stdin=f"KEY={self.mounted}\nMORE=1\n")
        self.run("secret", "create", "variables", "--from-stdin", "KEY", stdin=self.variable)
        words = ("--secret", "files:/run/files", "--secret", "variables")
        self.run("sandbox", "create", "a", *words, "--no-workspace")
        self.run("sandbox", "update", "a", "--env", "OTHER=1", "--memory", "1Gi")
        for command in ("suspend", "resume"):
            self.run("sandbox", command, "a", *(("--yes",) if command == "suspend" else ()))
        self.run("secret", "list")
        self.run("secret", "get", "files", "--json")
        for command in ("get", "logs"):
            self.run("sandbox", command, "a", "--json")
        differs = self.gateway.holdfast.run("secret", "create", "files", "--from-env-file", "/dev/null")
        self.observed_conditions += [differs.stdout, differs.stderr]

    def run(self, *words, stdin=""):
        holdfast = self.gateway.holdfast
        ended = subprocess.run(
            holdfast.argv(*words), input=stdin, env=holdfast.environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        self.observed_conditions += [ended.stdout, ended.stderr]

    def inside(self, path):
        return read_file(connect(), self.gateway.container, path).decode()

    @cached_property
    def secrets(self):
        """Every secret by name: the login as written and packed, and a line of each key's body."""
        login = f"robot:{self.password}"
        found = {
            "password": self.password,
            "secret of a sandbox": self.mounted,
            "login": base64.b64encode(login.encode()).decode(),
        }
        keys = {"mtls": ClientCertificateStore(self.folder / "mtls").key.read_text()}
        listed = run_in_container(
            connect(), self.gateway.container, ["sh", "-c", f"ls {STATE}/pki/*.key {STATE}/pki/*.pem"]
        )
        keys |= {path: self.inside(path) for path in listed.output.split()}
        config = (self.folder / "kubeconfig").read_text()
        packed = config.partition("client-key-data: ")[2].split()[0]
        keys["kubeconfig"] = base64.b64decode(packed).decode()
        found["kubeconfig, packed"] = packed[44:104]
        for secret in self.gateway.get("secrets", "-n", "holdfast")["items"]:
            for name, value in secret["data"].items():
                if name.endswith(".key"):
                    found[f"{secret['metadata']['name']} {name}, packed"] = value[44:104]
                    keys[f"{secret['metadata']['name']} {name}"] = base64.b64decode(value).decode()
        return found | {name: body_of(text) for name, text in keys.items() if "PRIVATE KEY" in text}


def body_of(pem):
    """The first line of what is between BEGIN and END: the secret number is in there."""
    lines = pem[pem.index("PRIVATE KEY-----") :].splitlines()
    return lines[1]


@pytest.fixture(scope="module")
def gateway_with_secrets(new_gateway, tmp_path_factory):
    folder, password = tmp_path_factory.mktemp("planted"), f"planted-{uuid.uuid4().hex}"
    login = folder / "login"
    login.touch(mode=0o600)
    login.write_text(f"robot:{password}\n")
    holdfast = HoldfastCli(
        folder / "home", HOLDFAST_REGISTRIES_CREDENTIALS=f"registry.example.org=file:{login}"
    )
    made = new_gateway("planted", holdfast=holdfast)
    with ProcessWatcher() as processes:
        found = SecretsGateway(made, password, processes)
        found.run("up", made.name, "--json")
        found.use_in_sandbox()
        for words in (
            ["up", made.name], ["status", made.name, "--json"],
            ["list", "--json"], ["runs", "--json"], ["runs", "show", "last", "--json"],
            ["doctor", made.name, "--json"], ["logs", made.name],
            ["doctor", made.name, "--bundle", str(folder / "bundle.tar.gz")],
        ):  # fmt: skip
            found.run(*words)
    with tarfile.open(folder / "bundle.tar.gz") as archive:
        found.bundle = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    return found


def texts_containing(secrets, texts):
    """Which secrets are in which texts, by their names alone: a failure must not print them either."""
    return [
        (name, where)
        for where, text in texts.items()
        for name, secret in secrets.items()
        if secret.encode() in (text if isinstance(text, bytes) else text.encode())
    ]


def test_secret_variable_of_a_sandbox_is_only_in_its_kubernetes_secret(gateway_with_secrets):
    """The environment of the sandbox's own processes has it, so that processes are not examined."""
    gateway = gateway_with_secrets.gateway
    packed = base64.b64encode(gateway_with_secrets.variable.encode()).decode()
    secret = gateway.get("secret", "holdfast-secret-variables")
    assert secret["data"] == {"KEY": packed}
    texts = {f"output {number}": text for number, text in enumerate(gateway_with_secrets.observed_conditions)}
    texts |= gateway_with_secrets.bundle
    texts["cluster"] = gateway.kubectl("get", KINDS, "-A", "-o", "json")
    logs = ["sh", "-c", f"cat {STATE}/logs/*"]
    texts["logs"] = run_in_container(connect(), gateway.container, logs).output
    home = gateway.holdfast.home
    texts |= {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    secrets = {"variable": gateway_with_secrets.variable, "variable, packed": packed}
    assert texts_containing(secrets, texts) == []


def test_secrets_exist_and_are_private_to_owner(gateway_with_secrets):
    secrets = gateway_with_secrets.secrets
    assert len(secrets) >= 12, list(secrets)
    assert all(len(secret) >= 30 for secret in secrets.values())
    assert gateway_with_secrets.password in base64.b64decode(secrets["login"]).decode()
    assert secrets["login"] in gateway_with_secrets.inside(f"{STATE}/kubelet/config.json")
    belongs = {"file": (gateway_with_secrets.folder / "kubeconfig").read_bytes()}
    assert ("kubeconfig, packed", "file") in texts_containing(secrets, belongs)
    private = [path for path in gateway_with_secrets.folder.rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in private} == {"0o600"}
    folders = " ".join(f"{STATE}/{name}" for name in ("pki", "registries", "kubeconfig"))
    script = f"find {folders} -type f -perm /077 ! -name '*.crt' ! -name '*.pub'"
    assert (
        run_in_container(connect(), gateway_with_secrets.gateway.container, ["sh", "-c", script]).output == ""
    )


def test_no_secret_in_output_or_local_files(gateway_with_secrets):
    texts = {f"output {number}": text for number, text in enumerate(gateway_with_secrets.observed_conditions)}
    home = gateway_with_secrets.gateway.holdfast.home
    own = {gateway_with_secrets.folder / "kubeconfig", *(gateway_with_secrets.folder / "mtls").rglob("*")}
    texts |= {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path not in own}
    assert any(name.endswith("state.db") for name in texts)
    assert texts_containing(gateway_with_secrets.secrets, texts) == []


def test_no_secret_in_doctor_bundle(gateway_with_secrets):
    assert len(gateway_with_secrets.bundle) > 10
    assert texts_containing(gateway_with_secrets.secrets, gateway_with_secrets.bundle) == []


def test_no_secret_in_process_arguments_or_environment(gateway_with_secrets):
    shown = gateway_with_secrets.processes.shown
    assert any(b"holdfast\0up" in text for text in shown)
    assert any(b"kube-apiserver" in text for text in shown)
    assert texts_containing(gateway_with_secrets.secrets, {"processes": b"\n".join(shown)}) == []


def test_no_secret_in_engine_objects(gateway_with_secrets):
    client, name = connect().client, gateway_with_secrets.gateway.container
    container = gateway_with_secrets.gateway.inspect()
    texts = {
        "container": json.dumps(container),
        "image": json.dumps(client.inspect_image(container["Image"])),
        "history": json.dumps(client.history(container["Image"])),
        "network": json.dumps(client.inspect_network(name)),
        "volume": json.dumps(client.inspect_volume(name)),
        "output": client.logs(name),
    }
    assert texts_containing(gateway_with_secrets.secrets, texts) == []


def test_no_secret_in_node_logs_or_public_cluster_objects(gateway_with_secrets):
    logs = run_in_container(
        connect(), gateway_with_secrets.gateway.container, ["sh", "-c", f"cat {STATE}/logs/*"]
    ).output
    assert "kubelet" in logs
    texts = {
        "node's logs": logs,
        "cluster": gateway_with_secrets.gateway.kubectl("get", KINDS, "-A", "-o", "json"),
    }
    pods = gateway_with_secrets.gateway.get("pods", "-A")["items"]
    for pod in pods:
        where = ("-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
        texts[pod["metadata"]["name"]] = gateway_with_secrets.gateway.kubectl(
            "logs", "--all-containers", *where
        )
    assert texts_containing(gateway_with_secrets.secrets, texts) == []
