from holdfast.server.sandboxes import pod_lookup as pod_lookup
from holdfast.server.sandboxes.pod_lookup import PodTarget as PodTarget
from holdfast.server.sandboxes.routes import (
    SandboxName as SandboxName,
    SandboxRoutes as SandboxRoutes,
    problem_responses as problem_responses,
    static_dependency as static_dependency,
)
from holdfast.server.sandboxes.service import SandboxLookup as SandboxLookup, SandboxService as SandboxService
