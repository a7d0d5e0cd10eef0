"""Kubernetes clients that retry what may be retried. Not here: Docker, gateways, steps."""
