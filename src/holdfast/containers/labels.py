"""The labels of holdfast's objects on a container engine."""

from __future__ import annotations

# On containers, networks and volumes: the name of their gateway.
GATEWAY = "dev.holdfast.gateway"

# On containers: the fingerprint of the settings they were created with.
SETTINGS = "dev.holdfast.settings"

# On node images: the version of the contract between image and holdfast.
CONTRACT = "dev.holdfast.contract"

# On node images: the Kubernetes version.
KUBERNETES = "dev.holdfast.kubernetes"

# On images built by holdfast: the content hash of all inputs.
INPUTS = "dev.holdfast.inputs"

# On short-lived containers: what they work on. The container of a node does not have it.
HELPER = "dev.holdfast.helper"
