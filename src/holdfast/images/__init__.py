"""Builds the node, gateway and sandbox images from package registries alone."""
