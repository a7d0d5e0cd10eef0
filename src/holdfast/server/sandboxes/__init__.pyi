from holdfast.server.sandboxes import presenters as presenters
from holdfast.server.sandboxes.pool_lookup import (
    list_extensions as list_extensions,
    pools_of_template as pools_of_template,
    template_of as template_of,
    unknown_template as unknown_template,
)
from holdfast.server.sandboxes.request_comparison import (
    REQUEST_DIGESTS_ANNOTATION as REQUEST_DIGESTS_ANNOTATION,
    describe_differences as describe_differences,
    differing_fields as differing_fields,
    network_rules as network_rules,
    request_digests as request_digests,
)
from holdfast.server.sandboxes.routes import (
    OBJECT_NAME_PATTERN as OBJECT_NAME_PATTERN,
    ContinueToken as ContinueToken,
    PageLimit as PageLimit,
    SandboxName as SandboxName,
    SandboxRoutes as SandboxRoutes,
    Selector as Selector,
    parse_body as parse_body,
    problem_responses as problem_responses,
)
from holdfast.server.sandboxes.sandbox_objects import (
    PodTarget as PodTarget,
    find_container as find_container,
    use_container as use_container,
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
