"""Reconciliation of SandboxClaims: binding a sandbox, and what a SandboxClaim may change about it."""
