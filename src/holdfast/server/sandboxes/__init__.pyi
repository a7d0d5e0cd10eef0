from holdfast.server.sandboxes.dependents import (
    PodTarget as PodTarget,
    find_container as find_container,
    use_container as use_container,
)
from holdfast.server.sandboxes.routes import (
    SandboxName as SandboxName,
    SandboxRoutes as SandboxRoutes,
    problem_responses as problem_responses,
)
from holdfast.server.sandboxes.service import SandboxLookup as SandboxLookup, SandboxService as SandboxService
