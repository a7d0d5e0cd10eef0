from holdfast.server.main import ServerOptions as ServerOptions, serve as serve
from holdfast.server.middleware import ClientLimits as ClientLimits
