from holdfast.testing.apiserver import outcome_audit as outcome_audit
from holdfast.testing.apiserver.kube_server import KubeServer as KubeServer
