from holdfast.server.usage.kubelet import Kubelet as Kubelet
from holdfast.server.usage.service import UsageRoutes as UsageRoutes, UsageService as UsageService
