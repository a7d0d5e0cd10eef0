"""The labels by which holdfast knows its own objects on an engine."""

from __future__ import annotations

GATEWAY = "dev.holdfast.gateway"
"""On containers, networks and volumes: the name of the gateway they belong to."""

SETTINGS = "dev.holdfast.settings"
"""On containers: the fingerprint of the settings they were made with."""

CONTRACT = "dev.holdfast.contract"
"""On node images: the version of the contract between image and holdfast."""

KUBERNETES = "dev.holdfast.kubernetes"
"""On node images: the Kubernetes version inside."""

INPUTS = "dev.holdfast.inputs"
"""On images built by holdfast: the content hash of all that went into them."""

HELPER = "dev.holdfast.helper"
"""On containers that only help for a moment: what they work on. No gateway's node has it."""
