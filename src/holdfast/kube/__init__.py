"""Kubernetes clients with retries: `resilient` for the official client, `Objects` for objects of any kind.

    from holdfast import resilient
    core = resilient(CoreV1Api(client))      # the same type, the same methods

    from holdfast.kube import Objects, api_client, pod, pod_ready
    objects = Objects(api_client(path))
    objects.ensure(pod("hello", "busybox"), namespace="default")

Names are loaded when they are first used: importing this package does not import `kubernetes`.
Not here: Docker, gateways, steps.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
