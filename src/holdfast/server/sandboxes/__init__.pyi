from holdfast.server.sandboxes import presenters as presenters
from holdfast.server.sandboxes.dependents import (
    PodTarget as PodTarget,
    find_container as find_container,
    use_container as use_container,
)
from holdfast.server.sandboxes.routes import (
    SandboxName as SandboxName,
    SandboxRoutes as SandboxRoutes,
    Selector as Selector,
    problem_responses as problem_responses,
)
from holdfast.server.sandboxes.service import (
    SandboxLookup as SandboxLookup,
    SandboxService as SandboxService,
    exclude_warm_pools as exclude_warm_pools,
)
from holdfast.server.sandboxes.start_failures import (
    explain_start as explain_start,
    is_starting as is_starting,
)
