"""Which gateway is meant and which settings count, where other commands would end with an error.

Whatever is wrong with either becomes a finding, and the examination goes on with what is left.
"""

from __future__ import annotations

from holdfast import home
from holdfast.errors import HoldfastError
from holdfast.gateway.doctor.case import Case
from holdfast.gateway.doctor.findings import Finding, note, problem
from holdfast.gateway.identity import check_name
from holdfast.gateway.settings import Resolved, resolve
from holdfast.gateway.spec import active_name


def open_case(given: str | None) -> Case:
    """The case of the named gateway, else of the active one, else of the only one there is."""
    known: list[Finding] = []
    resolved = _settings(known)
    name = check_name(given) if given is not None else _meant(known)
    return Case(name, resolved, tuple(known))


def _settings(known: list[Finding]) -> Resolved | None:
    try:
        return resolve()
    except HoldfastError as error:
        known.append(
            problem("settings-bad", "settings", f"{error.message}.", mend="person", repair=error.hint)
        )
        return None


def _meant(known: list[Finding]) -> str | None:
    names = _remembered()
    try:
        active = active_name()
        if active is not None:
            return check_name(active)
    except (HoldfastError, OSError, ValueError) as error:
        path = home.config_dir() / "active"
        cause = f"The file that names the active gateway cannot be used: {error}."
        repair = "Name the gateway. `holdfast up NAME` writes the file anew."
        known.append(problem("active-damaged", str(path), cause, mend="command", repair=repair))
    if len(names) == 1:
        return names[0]
    if names:
        cause = f"No gateway is named and none is active: there are {', '.join(names)}."
        known.append(note("no-gateway", "this machine", cause, repair="holdfast doctor NAME"))
    else:
        cause = "There is no gateway yet; only the engine and this machine were looked at."
        known.append(note("no-gateway", "this machine", cause, repair="holdfast up"))
    return None


def _remembered() -> list[str]:
    """The gateways that have a folder here, read or not."""
    try:
        folders = sorted(path.name for path in (home.config_dir() / "gateways").iterdir() if path.is_dir())
    except OSError:
        return []
    return [name for name in folders if _is_name(name)]


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except HoldfastError:
        return False
    return True
