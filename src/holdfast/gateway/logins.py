"""Read what settings refer to: logins from files or variables, and CA certificates.

Errors and tracebacks never contain a login.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import InvalidSettingError
from holdfast.workflow import Secret

_MAX_LOGIN_BYTES = 16 * 1024
# Reads have a limit, because a setting may name a device such as /dev/zero.
_MAX_CA_FILE_BYTES = 1 << 20
_PEM_BEGIN = b"-----BEGIN CERTIFICATE-----"


def read_login(reference: str, *, key: str, owner: str) -> Secret:
    """Read a login `user:password`.

    Args:
        reference: `env:NAME` or `file:PATH`.
        key: the setting, for errors.
        owner: whose login it is, for errors.

    Raises:
        InvalidSettingError: The login cannot be read; the message does not contain it.
    """
    kind, _, name = reference.partition(":")
    problem = f"{key}: cannot read the login of {owner} from {reference}"
    hint = f"Set {key} to file:PATH (mode 0600) or env:NAME with one line user:password."
    if kind == "env":
        text = os.environ.get(name)
        if text is None:
            raise InvalidSettingError(f"{problem}: the variable is not set", hint=hint)
    else:
        text = _read_login_file(Path(name), problem, hint)
    text = text.strip()
    user, colon, password = text.partition(":")
    if not user or not colon or not password or not text.isprintable():
        raise InvalidSettingError(f"{problem}: it is not one line user:password", hint=hint)
    return Secret(f"{key}/{owner}", text)


def _read_login_file(path: Path, problem: str, hint: str) -> str:
    try:
        with path.open("rb") as file:
            # Of the open file: the path may name another file by now.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                reason = f"other users can read the file (mode {mode:04o})"
                raise InvalidSettingError(f"{problem}: {reason}", hint=hint)
            content = file.read(_MAX_LOGIN_BYTES + 1)
        if len(content) > _MAX_LOGIN_BYTES:
            raise InvalidSettingError(f"{problem}: it is larger than {_MAX_LOGIN_BYTES} bytes", hint=hint)
        return content.decode()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidSettingError(f"{problem}: {reason}", hint=hint) from None
    except UnicodeDecodeError:
        # `from None`: a UnicodeDecodeError contains the bytes of the login and must not reach a traceback.
        raise InvalidSettingError(f"{problem}: it is not a text file", hint=hint) from None


def read_ca_file(path: Path, *, key: str, owner: str) -> bytes:
    """Read a PEM file with CA certificates.

    Args:
        path: the file.
        key: the setting, for errors.
        owner: who uses the certificates, for errors.

    Raises:
        InvalidSettingError: It cannot be read, contains no certificate, or contains a private key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_CA_FILE_BYTES + 1)
    except OSError as error:
        raise _ca_file_error(key, owner, path, error.strerror or type(error).__name__) from None
    if len(content) > _MAX_CA_FILE_BYTES:
        raise _ca_file_error(key, owner, path, f"it is larger than {_MAX_CA_FILE_BYTES} bytes")
    # A combined PEM file is a common mistake; its key must not be copied.
    if b"PRIVATE KEY-----" in content:
        raise _ca_file_error(key, owner, path, "it contains a private key; only the certificate is needed")
    if _PEM_BEGIN not in content:
        raise _ca_file_error(key, owner, path, "it contains no PEM certificate")
    return content


def _ca_file_error(key: str, owner: str, path: Path, reason: str) -> InvalidSettingError:
    return InvalidSettingError(
        f"{key}: cannot read the CA certificate of {owner} from {path}: {reason}",
        hint=f"Set {key} to the path of a PEM file with the CA certificate of {owner}.",
    )
