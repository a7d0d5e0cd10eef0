from holdfast.gateway.node.container import (
    RESTART_ALWAYS as RESTART_ALWAYS,
    RESTART_NEVER as RESTART_NEVER,
    CheckEngine as CheckEngine,
    EnsureContainer as EnsureContainer,
    EnsureNetwork as EnsureNetwork,
    check_engine as check_engine,
    check_same_version as check_same_version,
    is_detached as is_detached,
    recreate_reason as recreate_reason,
)
from holdfast.gateway.node.image import EnsureImage as EnsureImage
from holdfast.gateway.node.readiness import (
    NODE_EXIT_MANUAL_ACTION as NODE_EXIT_MANUAL_ACTION,
    NodeProgress as NodeProgress,
    WaitNodeReady as WaitNodeReady,
    WaitNodeRegistered as WaitNodeRegistered,
    WaitRuntime as WaitRuntime,
    disk_pressure_error as disk_pressure_error,
    explain_node_failure as explain_node_failure,
    read_node_logs as read_node_logs,
)
from holdfast.gateway.node.start import (
    CheckPorts as CheckPorts,
    DisableRestart as DisableRestart,
    EnableRestart as EnableRestart,
    StartContainer as StartContainer,
)
from holdfast.gateway.node.volume import (
    CheckDataVersion as CheckDataVersion,
    EnsureVolume as EnsureVolume,
    FinishInterruptedRollback as FinishInterruptedRollback,
)
