"""Whose the names in the environment are: ours, Kubernetes', or nobody's."""

from __future__ import annotations

from launcher.settings.hints import nearest
from launcher.settings.variables import BY_NAME, CANONICAL, INERT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX = "NIM_"
_PROTOCOLS = ("TCP", "UDP", "SCTP")
# The names by which people and platforms call a credential.
_SECRET_ENDINGS = ("_TOKEN", "_API_KEY", "_ACCESS_KEY", "_SECRET_KEY", "_SECRET", "PASSWORD", "_PASSWD")


def service_links(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that Kubernetes injects for each Service of the namespace and that look like ours or vLLM's.

    A Service called ``nim-server`` gives NIM_SERVER_PORT=tcp://10.0.0.1:8000 and half a dozen more.
    """
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if name.startswith((_PREFIX, "VLLM_")) and _is_link(name, value.strip())
        )
    )


def _is_link(name: str, value: str) -> bool:
    if name.endswith(("_SERVICE_HOST", "_SERVICE_PORT")) or "_SERVICE_PORT_" in name:
        return True
    if name.endswith("_PORT") and value.partition("://")[0].upper() in _PROTOCOLS:
        return True
    number, _, protocol = name.partition("_PORT_")[2].partition("_")
    return number.isdecimal() and protocol.partition("_")[0] in _PROTOCOLS


def services(links: Iterable[str]) -> dict[str, list[str]]:
    """The links by the name of the Service that they come from."""
    found: dict[str, list[str]] = {}
    for name in links:
        stem = name.partition("_SERVICE_")[0].partition("_PORT")[0]
        found.setdefault(stem.lower().replace("_", "-"), []).append(name)
    return found


def unknown_names(environ: Mapping[str, str], links: Iterable[str]) -> tuple[str, ...]:
    """The NIM_ names, in whatever case, that are set and mean nothing."""
    known = {*CANONICAL, *links}
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if name[: len(_PREFIX)].upper() == _PREFIX and name not in known and value.strip()
        )
    )


def is_foreign(name: str) -> bool:
    """Whether a known name is read by other programs too."""
    return name in CANONICAL and not name.startswith(_PREFIX)


def nearest_name(name: str) -> str | None:
    """The NIM_ variable that ``name`` most likely means, one with an effect before one without.

    Only what follows the prefix is compared: sharing NIM_ is no likeness.
    """
    active: dict[str, str] = {}
    inert: dict[str, str] = {}
    for spelling, canonical in CANONICAL.items():
        if spelling.startswith(_PREFIX):
            (inert if BY_NAME[canonical].status == INERT else active)[spelling[len(_PREFIX) :]] = canonical
    for stems in (active, inert):
        stem = nearest(name[len(_PREFIX) :], stems)
        if stem is not None:
            return stems[stem]
    return None


def named_like_a_secret(name: str) -> bool:
    return name.upper().endswith(_SECRET_ENDINGS)
