from holdfast.gateway import commands as commands
from holdfast.gateway.async_gateway import AsyncGateway as AsyncGateway
from holdfast.gateway.commands import GatewayResult as GatewayResult
from holdfast.gateway.context import GatewayContext as GatewayContext, UpOptions as UpOptions
from holdfast.gateway.doctor import (
    Diagnosis as Diagnosis,
    DoctorReport as DoctorReport,
    Finding as Finding,
    FixedBy as FixedBy,
    Repair as Repair,
    Severity as Severity,
)
from holdfast.gateway.endpoint import (
    api_access as api_access,
    current_kubeconfig as current_kubeconfig,
    merge_kubeconfig as merge_kubeconfig,
)
from holdfast.gateway.gateway import Gateway as Gateway, GatewayOptions as GatewayOptions
from holdfast.gateway.hosts import LocalHost as LocalHost
from holdfast.gateway.plan_summary import GatewayPlan as GatewayPlan, SettingChange as SettingChange
from holdfast.gateway.proxy_variables import read_proxy as read_proxy
from holdfast.gateway.registry import (
    GatewayFiles as GatewayFiles,
    active_gateway as active_gateway,
    check_recorded as check_recorded,
    known_gateway_names as known_gateway_names,
    known_gateways as known_gateways,
    read_metadata as read_metadata,
    requested_gateway_name as requested_gateway_name,
    resolve_gateway_name as resolve_gateway_name,
    use_gateway as use_gateway,
)
from holdfast.gateway.settings.resolver import (
    check_setting as check_setting,
    resolve_settings as resolve_settings,
)
from holdfast.gateway.spec import (
    CONTRACT_VERSION as CONTRACT_VERSION,
    kubeconfig_context as kubeconfig_context,
)
from holdfast.gateway.status import GatewayState as GatewayState, GatewayStatus as GatewayStatus
