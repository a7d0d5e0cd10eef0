"""The endpoint of a gateway's API comes from local files, without a container engine."""

import datetime as dt
import subprocess
import sys

import pytest

from holdfast import Gateway, Sandbox
from holdfast.client import Sandboxes
from holdfast.errors import GatewayNotFoundError, UsageError
from holdfast.gateway import GatewayFiles, api_access
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.pki import ClientCertificateStore, ClientIdentity, issue_bundle

LOADED = """
import sys
from holdfast.cli import cli
from holdfast.cli.output.errors import run_command
code = run_command(cli, sys.argv[1:])
sys.stderr.write("\\n".join(name.partition(".")[0] for name in sys.modules))
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def bundle():
    return issue_bundle(["localhost"], at=dt.datetime.now(dt.UTC))


def write_gateway(bundle, **fields):
    ClientCertificateStore(GatewayFiles("dev").mtls).write(ClientIdentity(bundle.ca, bundle.client))
    write_metadata(
        GatewayMetadata(**({"name": "dev", "image": "x", "port": 6443, "gateway_port": 8443} | fields))
    )


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1", "https://127.0.0.1:8443"),
        ("0.0.0.0", "https://127.0.0.1:8443"),
        ("192.0.2.7", "https://192.0.2.7:8443"),
        ("::1", "https://[::1]:8443"),
    ],
)
def test_address_uses_published_port(bundle, listen, url):
    write_gateway(bundle, listen=listen)
    endpoint = api_access("dev")
    assert (endpoint.gateway, endpoint.url, endpoint.ca) == ("dev", url, bundle.ca)
    assert (endpoint.certificate, endpoint.key) == (bundle.client.certificate, bundle.client.key)


def test_unknown_gateway_or_missing_api_names_command(bundle):
    with pytest.raises(GatewayNotFoundError, match="gateway dev: not found") as raised:
        api_access("dev")
    assert raised.value.hint == "Run `holdfast list` to see all gateways."
    write_gateway(bundle, gateway_port=0)
    with pytest.raises(GatewayNotFoundError, match="gateway dev: no API"):
        api_access("dev")


def test_missing_client_files_are_reported(bundle):
    write_gateway(bundle)
    ClientCertificateStore(GatewayFiles("dev").mtls).remove()
    with pytest.raises(GatewayNotFoundError, match="no client certificate"):
        Gateway("dev").sandbox("a").get()


def test_handles_make_no_requests_until_used():
    assert isinstance(Gateway("dev").sandbox("a"), Sandbox)
    assert isinstance(Gateway("dev").sandboxes(), Sandboxes)
    assert repr(Gateway("dev").sandbox("a")) == "<sandbox a>"
    with pytest.raises(UsageError):
        Gateway("dev").sandbox("Not A Name")


@pytest.mark.parametrize("arguments", [["sandbox", "--help"], ["sandbox", "create", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    result = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    heavy = {"aiohttp", "asyncio", "docker", "kubernetes", "rich", "cryptography", "litestar"}
    assert not heavy & set(result.stderr.split())
