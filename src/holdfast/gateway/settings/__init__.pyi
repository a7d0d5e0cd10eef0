from holdfast.gateway.settings.models import (
    AttemptSettings as AttemptSettings,
    ProxySettings as ProxySettings,
    RegistrySettings as RegistrySettings,
    Settings as Settings,
    TimeoutSettings as TimeoutSettings,
)
from holdfast.gateway.settings.resolver import (
    ResolvedSettings as ResolvedSettings,
    explain_settings as explain_settings,
    resolve_settings as resolve_settings,
)
