"""The controller: an informer fills a cache, a work queue runs reconcilers, an executor writes their
decisions.

The decisions are pure functions of `holdfast.sandbox`.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
