"""Sandboxes use the proxy and the CA certificates of the settings; the login is seen nowhere else."""

from __future__ import annotations

import subprocess
import tarfile

import pytest
from tests.support.forward_proxy import ForwardProxy, PrivateTlsServer
from tests.support.holdfast_cli import HoldfastCli

from holdfast.remote import connect

pytestmark = pytest.mark.engine

PASSWORD = "pl4nted:Pr0xy/word"
ENCODED_PASSWORD = "pl4nted%3APr0xy%2Fword"
OBJECTS = "sandboxes,pods,deployments,events,configmaps"
REQUEST = "import urllib.request; print(urllib.request.urlopen('{}', timeout=20).read().decode())"


class Site:
    """A gateway, and a TLS server and a proxy that its sandboxes reach at an address of this machine."""

    def __init__(self, folder, new_gateway):
        self.plain = HoldfastCli(folder / "home")
        self.gateway = new_gateway("proxy", holdfast=self.plain)
        self.gateway.up()
        (network,) = connect().client.inspect_network(self.gateway.container)["IPAM"]["Config"]
        self.server = PrivateTlsServer(network["Gateway"], folder)
        self.proxy = ForwardProxy(network["Gateway"], f"proxy-user:{PASSWORD}")
        login = folder / "login"
        login.touch(mode=0o600)
        login.write_text(f"proxy-user:{PASSWORD}\n")
        settings = {
            "HOLDFAST_PROXY_HTTP": self.proxy.url,
            "HOLDFAST_PROXY_HTTPS": self.proxy.url,
            "HOLDFAST_PROXY_NO_PROXY": "direct.example.org",
            "HOLDFAST_PROXY_CREDENTIALS": f"file:{login}",
            "HOLDFAST_SANDBOX_CA_BUNDLE": str(self.server.ca),
        }
        self.configured = HoldfastCli(folder / "home", **settings)

    def create(self, name, *options):
        self.configured("sandbox", "create", name, "--gateway", self.gateway.name, *options)

    def run(self, sandbox, *command):
        words = ["sandbox", "exec", sandbox, "--gateway", self.gateway.name, "--", *command]
        return self.configured.run(*words)


@pytest.fixture(scope="module")
def site(tmp_path_factory, new_gateway):
    made = Site(tmp_path_factory.mktemp("proxy"), new_gateway)
    with made.server, made.proxy:
        made.create("before")
        made.up_output = made.configured.run("up", made.gateway.name, "--verbose")
        assert made.up_output.returncode == 0, made.up_output.stderr
        made.create("box")
        yield made


def test_off_by_default(site):
    environment = site.run("before", "env").stdout
    assert "proxy" not in environment.lower().replace("holdfast-api", "")
    assert "SSL_CERT_FILE" not in environment
    assert "private" not in site.run("before", "curl", "--silent", site.server.url).stdout


@pytest.mark.parametrize(
    "command",
    [
        ["curl", "--silent", "--show-error"],
        ["python3", "-c"],
        ["git", "ls-remote"],
    ],
    ids=lambda command: command[0],
)
def test_programs_use_the_proxy_and_trust_the_ca(site, command):
    site.proxy.requests.clear()
    request = REQUEST.format(site.server.url) if command[0] == "python3" else site.server.url
    ended = site.run("box", *command, request)
    if command[0] == "git":
        # The server has no repository; a failed verification would be reported instead.
        assert "certificate" not in ended.stderr
    else:
        assert ended.stdout.strip() == "private", ended.stderr
    assert ("CONNECT", site.server.host) in site.proxy.requests


def test_cluster_is_reached_without_the_proxy(site):
    site.proxy.requests.clear()
    # Without a client certificate the API ends the connection, but its own certificate proves the address.
    ended = site.run("box", "sh", "-c", 'curl --verbose --insecure "${HOLDFAST_ENDPOINT:?}"')
    assert "Server certificate:" in ended.stderr, ended.stderr
    assert "holdfast-server" in ended.stderr.partition("Server certificate:")[2]
    assert site.proxy.requests == []


def test_user_env_overrides_both_spellings(site):
    site.create("own", "--env", "HTTPS_PROXY=http://other.example.org:1", "--env", "SSL_CERT_FILE=/mine")
    environment = dict(line.split("=", 1) for line in site.run("own", "env").stdout.splitlines())
    assert environment["HTTPS_PROXY"] == "http://other.example.org:1"
    assert "https_proxy" not in environment
    assert environment["SSL_CERT_FILE"] == "/mine"
    assert environment["http_proxy"] == environment["HTTP_PROXY"]
    assert "direct.example.org" in environment["NO_PROXY"]


def test_login_is_only_in_the_secret(site, tmp_path):
    home, name = site.configured.home, site.gateway.name
    bundle = tmp_path / "bundle.tar.gz"
    texts = {
        "up": site.up_output.stdout + site.up_output.stderr,
        "status": str(site.configured.json("status", name)),
        "objects": site.gateway.kubectl("get", OBJECTS, "-A", "-o", "yaml"),
        "describe": site.gateway.kubectl("describe", "pod", "box"),
        "api log": site.gateway.kubectl("logs", "-n", "holdfast", "deploy/holdfast-api"),
        "node": str(site.gateway.inspect()) + str(connect().client.logs(site.gateway.container)),
    }  # fmt: skip
    site.configured.run("doctor", name, "--bundle", str(bundle))
    with tarfile.open(bundle) as archive:
        contents = b"".join(archive.extractfile(member).read() for member in archive if member.isfile())
    texts["bundle"] = contents.decode(errors="replace")
    assert site.proxy.host in site.run("box", "env").stdout
    for place, text in texts.items():
        for secret in (PASSWORD, ENCODED_PASSWORD):
            assert secret not in text, place
    for secret in (PASSWORD, ENCODED_PASSWORD):
        found = subprocess.run(["grep", "-rlaF", secret, home], capture_output=True, text=True, check=False)
        assert found.stdout == ""


def test_withdrawn_settings_leave_new_and_existing_sandboxes_working(site):
    """The last test of this file: it removes the settings."""
    name = site.gateway.name
    changed = site.plain.json("up", name)["changed"]
    assert "write-host-settings" in changed
    assert "write-host-settings" not in site.plain.json("up", name)["changed"]
    site.configured("sandbox", "suspend", "box", "--gateway", name)
    site.configured("sandbox", "resume", "box", "--gateway", name)
    environment = site.run("box", "env").stdout
    assert "https_proxy" not in environment
    assert "BEGIN CERTIFICATE" in site.run("box", "sh", "-c", "cat $SSL_CERT_FILE").stdout
    assert site.run("box", "curl", "--silent", site.server.url).returncode == 60
