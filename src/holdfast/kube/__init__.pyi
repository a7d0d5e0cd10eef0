from holdfast.kube.builders import (
    docker_registry_secret as docker_registry_secret,
    env_secret as env_secret,
    job as job,
    pod as pod,
)
from holdfast.kube.certificate_files import temporary_secret_file as temporary_secret_file
from holdfast.kube.client import (
    api_client as api_client,
    async_api_client as async_api_client,
    in_cluster_async_client as in_cluster_async_client,
    run_sync as run_sync,
)
from holdfast.kube.client_limits import aiohttp_session as aiohttp_session
from holdfast.kube.conditions import (
    WaitCondition as WaitCondition,
    WaitResult as WaitResult,
    condition as condition,
    job_complete as job_complete,
    namespace_active as namespace_active,
    object_deleted as object_deleted,
    pod_ready as pod_ready,
    pod_succeeded as pod_succeeded,
    rollout_complete as rollout_complete,
)
from holdfast.kube.failures import (
    FailureClass as FailureClass,
    WriteOutcome as WriteOutcome,
    classify as classify,
    describe as describe,
    http_status as http_status,
    parse_status as parse_status,
    write_outcome as write_outcome,
)
from holdfast.kube.manifest_diff import (
    OPERATION_ID_ANNOTATION as OPERATION_ID_ANNOTATION,
    differences as differences,
    parse_quantity as parse_quantity,
)
from holdfast.kube.mtls import (
    HttpsResponse as HttpsResponse,
    https_get as https_get,
    mtls_context as mtls_context,
)
from holdfast.kube.objects import AsyncObjects as AsyncObjects, Objects as Objects
from holdfast.kube.resilient_api import resilient as resilient
from holdfast.kube.rest_client import ApiRequest as ApiRequest
from holdfast.kube.rest_mapping import ObjectReference as ObjectReference, fetch_openapi as fetch_openapi
from holdfast.kube.retry_table import Verb as Verb
from holdfast.kube.telemetry import opentelemetry as opentelemetry, prometheus as prometheus
from holdfast.kube.transport import OperationResult as OperationResult, open_session as open_session
