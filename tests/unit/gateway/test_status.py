"""The state of a gateway whose upgrade was interrupted before the new container was created."""

import pytest
from tests.support.inspected_containers import engine_with, inspected

from holdfast.gateway.context import GatewayContext
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.status import get_status

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=26443, gateway_port=26444)


@pytest.fixture
def gateway(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return GatewayContext("dev", resolve_settings({}, environ={}))


def test_parked_container_is_reported_with_command(gateway):
    gateway.engine = engine_with(inspected(SPEC, name=gateway.parked_name))
    status = get_status(gateway)
    assert (status.state, status.container, status.image) == ("stopped", gateway.parked_name, SPEC.image)
    assert status.server == "https://127.0.0.1:26443"
    (note,) = status.notes
    assert "`holdfast upgrade dev`" in note


def test_container_of_unfinished_upgrade_has_the_note_too(gateway):
    gateway.engine = engine_with(inspected(SPEC, name=gateway.parked_name), inspected(SPEC))
    status = get_status(gateway)
    assert (status.container, len(status.notes)) == (gateway.object_name, 1)


def test_gateway_without_containers_is_absent(gateway):
    gateway.engine = engine_with()
    assert (get_status(gateway).state, get_status(gateway).notes) == ("absent", ())


def test_address_of_the_gateway_api_is_reported_once_there_are_client_files(gateway):
    gateway.engine = engine_with(inspected(SPEC))
    assert get_status(gateway).api == ""
    gateway.files.client_certificates.current.mkdir(parents=True)
    assert get_status(gateway).api == "https://127.0.0.1:26444"


def test_outdated_merged_kubeconfig_is_a_note(gateway, monkeypatch):
    monkeypatch.setattr("holdfast.gateway.cluster.kubeconfig.merge_notes", lambda *_: ("outdated",))
    gateway.engine = engine_with(inspected(SPEC))
    assert get_status(gateway).notes == ("outdated",)
