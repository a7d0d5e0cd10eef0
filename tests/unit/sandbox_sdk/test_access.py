"""How a program finds a gateway's API: from what `up` left on this machine, without asking an engine."""

import datetime as dt
import subprocess
import sys

import pytest

from holdfast import Gateway, Sandbox
from holdfast.errors import UnknownGatewayError, UsageError
from holdfast.gateway.api_access import api_access
from holdfast.gateway.spec import GatewayFiles, Metadata, write_metadata
from holdfast.pki import ClientFiles, issue
from holdfast.pki.material import Identity
from holdfast.sandbox.sdk import Sandboxes

LOADED = """
import sys
from holdfast.cli import cli
from holdfast.cli.ending import exit_code_of
code = exit_code_of(cli, sys.argv[1:])
sys.stderr.write("\\n".join(name.partition(".")[0] for name in sys.modules))
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def bundle():
    return issue(["localhost"], at=dt.datetime.now(dt.UTC))


def remember(bundle, **facts):
    ClientFiles(GatewayFiles("dev").mtls).write(Identity(bundle.ca, bundle.client))
    write_metadata(Metadata(**({"name": "dev", "image": "x", "port": 6443, "gateway_port": 8443} | facts)))


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1", "https://127.0.0.1:8443"),
        ("0.0.0.0", "https://127.0.0.1:8443"),
        ("192.0.2.7", "https://192.0.2.7:8443"),
        ("::1", "https://[::1]:8443"),
    ],
)
def test_the_address_is_where_the_port_is_met(bundle, listen, url):
    remember(bundle, listen=listen)
    found = api_access("dev")
    assert (found.gateway, found.url, found.ca) == ("dev", url, bundle.ca)
    assert (found.certificate, found.key) == (bundle.client.certificate, bundle.client.key)


def test_a_gateway_that_is_not_known_or_has_no_api_names_the_command(bundle):
    with pytest.raises(UnknownGatewayError, match="no gateway dev") as raised:
        api_access("dev")
    assert raised.value.hint == "Bring it up: holdfast up dev"
    remember(bundle, gateway_port=0)
    with pytest.raises(UnknownGatewayError, match="no API of its own"):
        api_access("dev")


def test_client_files_that_are_gone_are_said(bundle):
    remember(bundle)
    ClientFiles(GatewayFiles("dev").mtls).remove()
    with pytest.raises(UnknownGatewayError, match="no client files"):
        Gateway("dev").sandbox("a").get()


def test_handles_ask_nobody_until_they_are_used():
    assert isinstance(Gateway("dev").sandbox("a"), Sandbox)
    assert isinstance(Gateway("dev").sandboxes(), Sandboxes)
    assert repr(Gateway("dev").sandbox("a")) == "<sandbox a>"
    with pytest.raises(UsageError):
        Gateway("dev").sandbox("Not A Name")


@pytest.mark.parametrize("words", [["sandbox", "--help"], ["sandbox", "create", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(words):
    ended = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    heavy = {"aiohttp", "asyncio", "docker", "kubernetes", "rich", "cryptography", "litestar"}
    assert not heavy & set(ended.stderr.split())
