"""Real gateways for end-to-end tests, separate for each file; shared/ has one for several files."""

import uuid

import pytest
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli
from tests.support.small_images import SmallImages

from holdfast.remote import connect


@pytest.fixture(scope="session")
def holdfast(tmp_path_factory):
    """The command line with a separate HOLDFAST_HOME."""
    return HoldfastCli(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def new_gateway(holdfast):
    """Create gateways; destroy them with their data after the file, because a host has resources for few."""
    made = []

    def make(label, **options):
        gateway = TestGateway(
            f"t-{label}-{uuid.uuid4().hex[:6]}", options.pop("holdfast", holdfast), has_own_ports=True
        )
        made.append(gateway)
        return gateway

    yield make
    for gateway in made:
        gateway.force_destroy()


@pytest.fixture(scope="session")
def small_images():
    """Build small images on this machine's engine; remove them at the end."""
    made = SmallImages(connect())
    yield made
    made.remove_all()
