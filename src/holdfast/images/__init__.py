"""Builds the node, gateway and sandbox images from package registries, without a container build tool.

`save_images` and `load_images` copy built images to machines that do not build.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
