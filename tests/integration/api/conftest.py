"""An API server with the four CRDs."""

import json

import pytest

from holdfast.api import build_crds
from holdfast.kube import Objects, api_client, condition

CRD = "CustomResourceDefinition"


@pytest.fixture(scope="session")
def openapi_documents(kube_server):
    """The server's OpenAPI documents of the core and networking groups."""
    with api_client(kube_server.kubeconfig) as api:

        def get_document(path):
            request = api.param_serialize("GET", path, auth_settings=["BearerToken"])
            return json.loads(api.call_api(*request).read())

        return get_document("/openapi/v3/api/v1"), get_document("/openapi/v3/apis/networking.k8s.io/v1")


@pytest.fixture(scope="session")
def made(kube_server, openapi_documents):
    """The installed CRDs: a client of the server, and their manifests."""
    with api_client(kube_server.kubeconfig) as api:
        definitions = build_crds(*openapi_documents)
        objects = Objects(api)
        for definition in definitions:
            objects.apply(definition)
        for definition in definitions:
            objects.wait(CRD, definition["metadata"]["name"], condition("Established"), deadline=60)
        yield objects, definitions


@pytest.fixture
def objects(made):
    return made[0]
