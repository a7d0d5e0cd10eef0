"""One API server with the four kinds in it, as a gateway puts them there."""

import json

import pytest

from holdfast.kube import Objects, api_client, condition
from holdfast.sandbox.crds import crds

CRD = "CustomResourceDefinition"


@pytest.fixture(scope="session")
def descriptions(kube_server):
    """What the server says of its own kinds: core, and networking."""
    with api_client(kube_server.kubeconfig) as api:

        def asked(path):
            request = api.param_serialize("GET", path, auth_settings=["BearerToken"])
            return json.loads(api.call_api(*request).read())

        return asked("/openapi/v3/api/v1"), asked("/openapi/v3/apis/networking.k8s.io/v1")


@pytest.fixture(scope="session")
def made(kube_server, descriptions):
    """The server, and the four definitions that it was given."""
    with api_client(kube_server.kubeconfig) as api:
        definitions = crds(*descriptions)
        objects = Objects(api)
        for definition in definitions:
            objects.apply(definition)
        for definition in definitions:
            objects.wait(CRD, definition["metadata"]["name"], condition("Established"), deadline=60)
        yield objects, definitions


@pytest.fixture
def objects(made):
    return made[0]
