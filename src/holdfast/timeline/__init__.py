"""The timeline of a run: a model of its steps, waits and retries, and one HTML page that shows it.

The model is a pure function of the run's record, and the page a pure function of the model. Reads stores;
runs nothing.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
