"""The one gateway of this folder, and a clean one for each file."""

import uuid

import pytest
from tests.support.gateway import TestGateway


@pytest.fixture(scope="package")
def bare_gateway(holdfast):
    """One gateway that is Kubernetes alone, for tests that put things into it; they may stop and start it."""
    made = TestGateway(f"t-shared-{uuid.uuid4().hex[:6]}", holdfast)
    try:
        made.up()
        yield made
    finally:
        made.force_destroy()


@pytest.fixture(scope="module", autouse=True)
def delete_leftover_pods(bare_gateway):
    """Pods of one file are not in the way of the next: a node has room for so many."""
    yield
    bare_gateway.kubectl("delete", "pods,pvc", "--all", "--wait=false")
