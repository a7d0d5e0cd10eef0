"""The HTTPS API of a gateway, which runs in its cluster and authenticates clients by certificate.

Importing this package does not import the web framework. `holdfast.gateway.cluster` deploys it.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
