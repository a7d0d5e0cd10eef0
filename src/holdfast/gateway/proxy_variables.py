"""The setting `proxy`: proxy variables with the login, for sandboxes and for image builds."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from holdfast.gateway.logins import read_login
from holdfast.workflow import Secret

if TYPE_CHECKING:
    from holdfast.gateway.settings import ProxySettings

_KEY = "proxy.credentials"
_LOCAL_DESTINATIONS = ("localhost", "127.0.0.1", "::1")
# Names and addresses of Services and pods: a proxy outside the cluster cannot reach them.
CLUSTER_DESTINATIONS = (".svc", ".cluster.local", "10.96.0.0/16", "10.244.0.0/16")


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """Proxy variables in lower case, and the secrets that their values contain."""

    variables: dict[str, str]
    secrets: tuple[Secret, ...] = ()

    # Without the values, which may contain a login: a repr may reach a traceback or a log.
    def __repr__(self) -> str:
        return f"Proxy({', '.join(self.variables)})"


def has_proxy(settings: ProxySettings) -> bool:
    """Whether a proxy is set."""
    return bool(settings.http or settings.https)


def read_proxy(settings: ProxySettings, *, no_proxy: tuple[str, ...] = ()) -> Proxy | None:
    """Return the proxy variables, or None if no proxy is set.

    Args:
        settings: the setting.
        no_proxy: destinations without a proxy, besides those of the setting and this machine.

    Raises:
        InvalidSettingError: The login cannot be read; the message does not contain it.
    """
    if not has_proxy(settings):
        return None
    login = read_login(settings.credentials, key=_KEY, owner="the proxy") if settings.credentials else None
    urls = {"http_proxy": settings.http, "https_proxy": settings.https}
    variables = {name: _with_login(url, login) for name, url in urls.items() if url}
    excluded = dict.fromkeys((*_LOCAL_DESTINATIONS, *no_proxy, *settings.no_proxy))
    variables["no_proxy"] = ",".join(excluded)
    return Proxy(variables=variables, secrets=_secret_forms(login) if login is not None else ())


def _with_login(url: str, login: Secret | None) -> str:
    if login is None:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{_quote_login(login)}@{parts.netloc}"))


def _quote_login(login: Secret) -> str:
    user, _, password = login.text().partition(":")
    return f"{quote(user, safe='')}:{quote(password, safe='')}"


def _secret_forms(login: Secret) -> tuple[Secret, ...]:
    """Return what a message could quote: the login, the password alone, and both as part of a URL."""
    texts = (login.text(), _quote_login(login))
    forms = dict.fromkeys((*texts, *(text.partition(":")[2] for text in texts)))
    return tuple(Secret(login.ref, text) for text in forms)
