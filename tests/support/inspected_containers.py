"""Containers of gateways as an engine shows them, and a fake engine that only shows them."""

from __future__ import annotations

from types import SimpleNamespace

import docker.errors

from holdfast.gateway.node.container import container_config, host_config
from holdfast.gateway.spec import HOLDFAST_NODE


def inspected(spec, name="holdfast-dev", **state):
    """A container of this spec, as an engine shows it; stopped unless `state` says otherwise."""
    host = host_config(spec, HOLDFAST_NODE)
    filled = [
        {"Count": 0, "DeviceIDs": None, "Options": {}, **request}
        for request in host.get("DeviceRequests", ())
    ]
    return {
        "Id": "c" * 64,
        "Name": f"/{name}",
        "Image": "sha256:" + "1" * 64,
        "State": {"Status": "exited", "ExitCode": 0, **state},
        "Config": {**container_config(spec, HOLDFAST_NODE), "Image": spec.image},
        "HostConfig": {**host, "DeviceRequests": filled or None},
        "NetworkSettings": {"Networks": {}},
    }


def engine_with(*containers):
    """A fake engine with these containers, and without images and volumes."""
    by_name = {container["Name"].lstrip("/"): container for container in containers}

    def inspect_container(name):
        if name not in by_name:
            raise docker.errors.NotFound(f"No such container: {name}")
        return by_name[name]

    def inspect_image(name):
        raise docker.errors.ImageNotFound(f"No such image: {name}")

    client = SimpleNamespace(
        inspect_container=inspect_container,
        inspect_image=inspect_image,
        volumes=lambda filters: {"Volumes": []} if filters else None,
        containers=lambda **_: [],
    )
    return SimpleNamespace(client=client, address="", is_local=True)
