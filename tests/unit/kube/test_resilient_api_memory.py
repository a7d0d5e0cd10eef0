"""What a successful call leaves behind: nothing."""

import gc
import weakref

from kubernetes import client

from holdfast.kube import resilient


def test_response_is_freed_without_garbage_collector(server, store):
    configuration = client.Configuration()
    configuration.host = server.url
    seen = []
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        request = made.rest_client.request

        def kept(*args, **kwargs):
            answer = request(*args, **kwargs)
            seen.append(weakref.ref(answer))
            return answer

        made.rest_client.request = kept
        gc.disable()
        try:
            core.create_namespaced_config_map("n", {"metadata": {"name": "a"}})
            assert [ref() for ref in seen] == [None]
        finally:
            gc.enable()
