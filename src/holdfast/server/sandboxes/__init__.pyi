from holdfast.server.sandboxes import presenters as presenters
from holdfast.server.sandboxes.container_use import (
    PodTarget as PodTarget,
    find_container as find_container,
    use_container as use_container,
)
from holdfast.server.sandboxes.object_events import (
    explain_start as explain_start,
    is_starting as is_starting,
)
from holdfast.server.sandboxes.pool_lookup import (
    list_extensions as list_extensions,
    pools_of_template as pools_of_template,
    template_of as template_of,
    unknown_template as unknown_template,
)
from holdfast.server.sandboxes.request_comparison import (
    create_once as create_once,
    request_digests as request_digests,
)
from holdfast.server.sandboxes.routes import SandboxRoutes as SandboxRoutes
from holdfast.server.sandboxes.service import (
    SandboxLookup as SandboxLookup,
    SandboxService as SandboxService,
    exclude_warm_pools as exclude_warm_pools,
)
