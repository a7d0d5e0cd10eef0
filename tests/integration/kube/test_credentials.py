"""401 makes everybody who was refused wait for one refresh; 403 makes nobody wait for anything."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kubernetes import aio, client, config

from holdfast.kube import resilient
from holdfast.testing.faults import FaultProxy, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

STALE = rule("unauthorized", header="^authorization: Bearer stale$")


def use(configuration, token):
    configuration.api_key = {"BearerToken": f"Bearer {token}"}


def test_sixteen_threads_are_refused_and_one_refreshes(faulty_kube, kube_namespace):
    refreshes, results = [], []
    with config.new_client_from_config(str(faulty_kube.kubeconfig)) as made, faulty_kube.faults(STALE) as log:
        use(made.configuration, "stale")
        gate = threading.Barrier(16)

        def refresh():
            refreshes.append(1)
            threading.Event().wait(0.1)
            use(made.configuration, "fresh")

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


def test_the_same_in_tasks(faulty_kube, kube_namespace):
    refreshes = []

    async def main():
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            use(made.configuration, "stale")

            def refresh():
                refreshes.append(1)
                use(made.configuration, "fresh")

            api = resilient(aio.client.CoreV1Api(made), refresh_credentials=refresh)
            return await asyncio.gather(*(api.list_namespaced_config_map(kube_namespace) for _ in range(16)))

    with faulty_kube.faults(STALE):
        assert len(asyncio.run(main())) == 16
    assert len(refreshes) == 1


def test_credentials_that_stay_bad_are_refreshed_once_and_then_told(faulty_kube, kube_namespace):
    refreshes = []
    with config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
        use(made.configuration, "stale")
        api = resilient(client.CoreV1Api(made), refresh_credentials=lambda: refreshes.append(1))
        with faulty_kube.faults(STALE) as log, pytest.raises(client.ApiException) as caught:
            api.list_namespaced_config_map(kube_namespace)
    assert caught.value.status == 401
    assert len(refreshes) == 1
    assert len(log) == 2
    assert "stale" not in str(caught.value)


def test_forbidden_is_asked_once(kube_server, kube_namespace):
    with (
        FaultProxy(kube_server.user_kubeconfig("bob")) as proxy,
        config.new_client_from_config(str(proxy.kubeconfig)) as made,
        pytest.raises(client.ApiException) as caught,
    ):
        resilient(client.CoreV1Api(made)).list_namespaced_pod(kube_namespace)
    assert caught.value.status == 403
    assert len(proxy.log) == 1
