from holdfast.testing.apiserver.kube_server import KubeServer as KubeServer
