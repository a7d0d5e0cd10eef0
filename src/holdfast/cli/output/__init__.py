"""What commands print: results on stdout; progress and errors on stderr, as text or JSON."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
