from holdfast.gateway.cluster import kubeconfig as kubeconfig
from holdfast.gateway.cluster.health import RunSmokeTest as RunSmokeTest, WaitHealthy as WaitHealthy
from holdfast.gateway.cluster.kubeconfig import (
    KubeCredentials as KubeCredentials,
    get_gateway_info as get_gateway_info,
    kubernetes_get as kubernetes_get,
)
from holdfast.gateway.cluster.proxy_and_ca import (
    WriteHostSettings as WriteHostSettings,
    read_host_sources as read_host_sources,
)
from holdfast.gateway.cluster.rollout import (
    ApplyWorkloads as ApplyWorkloads,
    EnsureNamespace as EnsureNamespace,
    WaitRollout as WaitRollout,
    permanent_failure as permanent_failure,
)
from holdfast.gateway.cluster.tls import (
    ReconcileTls as ReconcileTls,
    WriteClientFiles as WriteClientFiles,
    clock_skew_seconds as clock_skew_seconds,
)
