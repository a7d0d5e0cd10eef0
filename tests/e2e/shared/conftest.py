"""One gateway for all files of this folder, without pods at the start of each file."""

import uuid

import pytest
from tests.support.gateway import TestGateway


@pytest.fixture(scope="package")
def bare_gateway(holdfast):
    """One gateway without holdfast's workloads; tests may stop and start it."""
    made = TestGateway(f"t-shared-{uuid.uuid4().hex[:6]}", holdfast, has_own_ports=True)
    try:
        made.up()
        yield made
    finally:
        made.force_destroy()


@pytest.fixture(scope="module", autouse=True)
def delete_leftover_pods(bare_gateway):
    """Delete the pods of a file: a node runs a limited number."""
    yield
    bare_gateway.kubectl("delete", "pods,pvc", "--all", "--wait=false")
