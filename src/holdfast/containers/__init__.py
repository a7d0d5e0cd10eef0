"""The container engine: images, containers, networks, volumes. Not here: what a gateway is made of."""
