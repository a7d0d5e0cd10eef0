"""holdfast: one-node Kubernetes gateways and agent sandboxes that survive failures.

The names below are the whole public API of the root package. Each is imported on first use.
"""

from holdfast import lazy_exports

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
__all__ += ["__version__"]
