"""Real gateways for end-to-end tests: one that all read from, and fresh ones for tests that break things."""

import uuid

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway
from tests.support.small_images import SmallImages

from holdfast.containers.engine import connect


@pytest.fixture(scope="session")
def holdfast(tmp_path_factory):
    """The command line with a home of its own."""
    return Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def new_gateway(holdfast):
    """Makes gateways and takes them away when the file is done, data and all: a host has room for few."""
    made = []

    def make(label, **options):
        gateway = TestGateway(f"t-{label}-{uuid.uuid4().hex[:6]}", options.pop("holdfast", holdfast))
        made.append(gateway)
        return gateway

    yield make
    for gateway in made:
        gateway.holdfast.run("destroy", gateway.name, "--data", "--yes", gateway.name)


@pytest.fixture(scope="module")
def gateway(new_gateway):
    """One gateway that is up; tests leave it as they found it."""
    made = new_gateway("shared")
    made.up()
    return made


@pytest.fixture(scope="module")
def bare_gateway(new_gateway, holdfast):
    """One gateway that is Kubernetes alone, for tests that put things into it; they may stop and start it."""
    made = new_gateway("bare", holdfast=Holdfast(holdfast.home, HOLDFAST_WORKLOADS="false"))
    made.up()
    return made


@pytest.fixture(scope="session")
def small_images():
    """Makes small images on this machine's engine and removes them at the end."""
    made = SmallImages(connect())
    yield made
    made.remove()
