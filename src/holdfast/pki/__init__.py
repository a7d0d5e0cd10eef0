"""Certificates: a CA, what it signs, and what makes a bundle still good.

    from holdfast.pki import ClientFiles, issue, judge, judge_client, from_secret_data, to_secret_data

    stored = from_secret_data(secrets)
    judgement = judge(stored, names=["localhost"], at=now)
    bundle = stored.bundle if judgement.good else issue(["localhost"], at=now)

Each name is loaded on first use: what only moves files does not load the cryptography library.
Not here: the cluster's API (values go in and come out), and the node's own certificates, which the node makes
and renews by itself. Why the CA's key is kept nowhere: docs/decisions/0050-the-ca-key-is-thrown-away.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import lazy

if TYPE_CHECKING:
    from holdfast.pki.authority import CLIENT_NAME, LIFE, Authority, issue
    from holdfast.pki.client_files import ClientFiles
    from holdfast.pki.judgement import RENEW_BELOW, judge, judge_client
    from holdfast.pki.material import Bundle, Identity, Pair, Stored
    from holdfast.pki.names import check_server_name
    from holdfast.pki.reasons import Code, Judgement, Reason
    from holdfast.pki.secret_data import (
        CLIENT_CA_SECRET,
        CLIENT_SECRET,
        SECRET_TYPES,
        SERVER_SECRET,
        from_secret_data,
        to_secret_data,
    )

__all__ = [
    "CLIENT_CA_SECRET",
    "CLIENT_NAME",
    "CLIENT_SECRET",
    "LIFE",
    "RENEW_BELOW",
    "SECRET_TYPES",
    "SERVER_SECRET",
    "Authority",
    "Bundle",
    "ClientFiles",
    "Code",
    "Identity",
    "Judgement",
    "Pair",
    "Reason",
    "Stored",
    "check_server_name",
    "from_secret_data",
    "issue",
    "judge",
    "judge_client",
    "to_secret_data",
]

_HOMES = {
    "CLIENT_CA_SECRET": "secret_data",
    "CLIENT_NAME": "authority",
    "CLIENT_SECRET": "secret_data",
    "LIFE": "authority",
    "RENEW_BELOW": "judgement",
    "SECRET_TYPES": "secret_data",
    "SERVER_SECRET": "secret_data",
    "Authority": "authority",
    "Bundle": "material",
    "ClientFiles": "client_files",
    "Code": "reasons",
    "Identity": "material",
    "Judgement": "reasons",
    "Pair": "material",
    "Reason": "reasons",
    "Stored": "material",
    "check_server_name": "names",
    "from_secret_data": "secret_data",
    "issue": "authority",
    "judge": "judgement",
    "judge_client": "judgement",
    "to_secret_data": "secret_data",
}


__getattr__ = lazy.names(globals(), _HOMES)
