"""Builds a client for a program that runs in the cluster itself, with the account of its pod.

The account's token is a file that is written anew before it ends; every request uses the one of the minute.
Not here: clients from a kubeconfig (`client`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ArgumentError
from holdfast.kube.harden import harden

if TYPE_CHECKING:
    import kubernetes.aio.client as aio

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its CA and its namespace."""


async def in_cluster_async_client() -> aio.ApiClient:
    """A client in tasks for the cluster that this process runs in; close it with `await close()`."""
    from kubernetes.aio import client, config

    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise ArgumentError("kubeconfig", "must be given: this process does not run in a cluster") from error
    made = client.ApiClient(configuration)
    harden(made)
    return made
