"""After a 401 all rejected callers wait for one refresh; a 403 does not refresh."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest
import yaml
from kubernetes import aio, client, config

from holdfast.kube import api_client, async_api_client, resilient
from holdfast.testing.ephemeral_pki import EphemeralCA, write_kubeconfig
from holdfast.testing.faults import FaultProxy, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

STALE_TOKEN = rule("unauthorized", header="^authorization: Bearer stale$")


def use_token(configuration, token):
    configuration.api_key = {"BearerToken": f"Bearer {token}"}


def test_sixteen_unauthorized_threads_refresh_once(faulty_kube, kube_namespace):
    refreshes, results = [], []
    with (
        config.new_client_from_config(str(faulty_kube.kubeconfig)) as made,
        faulty_kube.faults(STALE_TOKEN) as log,
    ):
        use_token(made.configuration, "stale")
        gate = threading.Barrier(16)

        def refresh():
            refreshes.append(1)
            threading.Event().wait(0.1)
            use_token(made.configuration, "fresh")

        api = resilient(client.CoreV1Api(made), refresh_credentials=refresh)

        def work(number):
            gate.wait()
            body = {"metadata": {"name": f"a-{number}"}}
            results.append(api.create_namespaced_config_map(kube_namespace, body))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 16
    assert len(refreshes) == 1
    assert log.faults()["unauthorized"] <= 16


def test_unauthorized_tasks_refresh_once(faulty_kube, kube_namespace):
    refreshes = []

    async def main():
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            use_token(made.configuration, "stale")

            def refresh():
                refreshes.append(1)
                use_token(made.configuration, "fresh")

            api = resilient(aio.client.CoreV1Api(made), refresh_credentials=refresh)
            return await asyncio.gather(*(api.list_namespaced_config_map(kube_namespace) for _ in range(16)))

    with faulty_kube.faults(STALE_TOKEN):
        assert len(asyncio.run(main())) == 16
    assert len(refreshes) == 1


def test_rejected_credentials_are_refreshed_once_then_reported(faulty_kube, kube_namespace):
    refreshes = []
    with config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
        use_token(made.configuration, "stale")
        api = resilient(client.CoreV1Api(made), refresh_credentials=lambda: refreshes.append(1))
        with faulty_kube.faults(STALE_TOKEN) as log, pytest.raises(client.ApiException) as caught:
            api.list_namespaced_config_map(kube_namespace)
    assert caught.value.status == 401
    assert len(refreshes) == 1
    assert len(log) == 2
    assert "stale" not in str(caught.value)


@pytest.fixture
def stale_kubeconfig(kube_server, tmp_path):
    """A kubeconfig with a rejected certificate, and a function that replaces it with a valid one."""
    path, elsewhere = tmp_path / "kubeconfig", EphemeralCA()
    good = yaml.safe_load(kube_server.kubeconfig.read_text())
    authority = base64.b64decode(good["clusters"][0]["cluster"]["certificate-authority-data"])
    stale = elsewhere.issue("admin", groups=("system:masters",))
    write_kubeconfig(path, url=kube_server.url, ca=authority, client=stale)

    def renew():
        both = base64.b64encode(authority + elsewhere.certificate).decode()
        good["clusters"][0]["cluster"]["certificate-authority-data"] = both
        path.write_text(yaml.safe_dump(good))

    return path, renew


def test_renewed_certificate_is_loaded(stale_kubeconfig, kube_namespace):
    path, renew = stale_kubeconfig
    with api_client(path) as made:
        core = resilient(client.CoreV1Api(made))
        with pytest.raises(client.ApiException) as caught:
            core.list_namespaced_config_map(kube_namespace)
        assert caught.value.status == 401
        renew()
        assert core.list_namespaced_config_map(kube_namespace).kind == "ConfigMapList"


def test_renewed_certificate_and_ca_are_loaded_async(stale_kubeconfig, kube_namespace):
    path, renew = stale_kubeconfig

    async def main():
        async with await async_api_client(path) as made:
            core = resilient(aio.client.CoreV1Api(made))
            with pytest.raises(aio.client.ApiException) as caught:
                await core.list_namespaced_config_map(kube_namespace)
            assert caught.value.status == 401
            renew()
            found = await core.list_namespaced_config_map(kube_namespace)
            return found.kind, made.rest_client.ssl_context.get_ca_certs()

    kind, trusted = asyncio.run(main())
    assert kind == "ConfigMapList"
    assert len(trusted) == 2


def test_forbidden_is_not_retried(kube_server, kube_namespace):
    with (
        FaultProxy(kube_server.user_kubeconfig("bob")) as proxy,
        config.new_client_from_config(str(proxy.kubeconfig)) as made,
        pytest.raises(client.ApiException) as caught,
    ):
        resilient(client.CoreV1Api(made)).list_namespaced_pod(kube_namespace)
    assert caught.value.status == 403
    assert len(proxy.log) == 1
