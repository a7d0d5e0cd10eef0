from holdfast.server.pools.routes import PoolRoutes as PoolRoutes, TemplateRoutes as TemplateRoutes
from holdfast.server.pools.service import PoolService as PoolService
from holdfast.server.pools.templates import TemplateService as TemplateService
