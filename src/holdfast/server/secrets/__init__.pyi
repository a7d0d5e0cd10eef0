from holdfast.server.secrets.routes import SecretRoutes as SecretRoutes
from holdfast.server.secrets.store import SecretStore as SecretStore
