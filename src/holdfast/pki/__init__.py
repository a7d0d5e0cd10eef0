"""Certificates of a gateway: issue, validate and store them.

    from holdfast.pki import from_secret_data, issue_bundle, validate_bundle

    stored = from_secret_data(secrets)
    result = validate_bundle(stored, names=["localhost"], at=now)
    bundle = stored.value if result.is_valid else issue_bundle(["localhost"], at=now)

Names are loaded on first use: reading certificate files does not load the cryptography library. The node
issues and renews its own certificates. docs/decisions/0050-certificates.md explains why the key
of the CA is not stored.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
