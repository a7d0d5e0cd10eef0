from holdfast.server.usage.kubelet import Kubelet as Kubelet
from holdfast.server.usage.routes import UsageRoutes as UsageRoutes
from holdfast.server.usage.service import UsageService as UsageService
