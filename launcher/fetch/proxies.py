"""Which proxy leads to a URL, if any (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from launcher.errors import ConfigurationError
from launcher.fetch.retry import shown


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL, or None for a direct connection.

    HTTPS_PROXY and HTTP_PROXY by the URL's scheme, else ALL_PROXY; the lower-case name wins, as in curl.  NO_PROXY
    lists hosts (and what is below them), ``host:port``, networks such as 10.0.0.0/8, or ``*``.

    Raises ConfigurationError for a proxy of a kind that cannot be used.
    """
    parts = urlsplit(url)
    variable, proxy = _proxy(environ, parts.scheme)
    if not proxy or _excepted(parts.hostname or "", parts.port, _value(environ, "no_proxy")[1]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not _is_usable(proxy):
        raise ConfigurationError(
            f"{variable}: the proxy {_shown(proxy)} cannot be used: only http://host:port works, for sources with "
            "https:// too",
            f"Write {variable}=http://host:port, or name the source's host in NO_PROXY",
        )
    return proxy


def _is_usable(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and len(parts.netloc.split()) == 1


def _shown(proxy: str) -> str:
    """The proxy without its password; also of text that is no URL at all."""
    try:
        return shown(proxy)
    except ValueError:
        scheme, _, rest = proxy.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"


def _proxy(environ: Mapping[str, str], scheme: str) -> tuple[str, str]:
    """The variable that names a proxy for ``scheme``, and what it says; "" where none does."""
    variable, proxy = _value(environ, f"{scheme}_proxy")
    return (variable, proxy) if proxy else _value(environ, "all_proxy")


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """A variable as it is spelt, and its value: the lower-case name wins."""
    for variable in (name, name.upper()):
        value = environ.get(variable, "").strip()
        if value:
            return variable, value
    return name.upper(), ""


def _excepted(host: str, port: int | None, rules: str) -> bool:
    return any(_covers(rule.strip().lower(), host.lower(), port) for rule in rules.split(",") if rule.strip())


def _covers(rule: str, host: str, port: int | None) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        return _in_network(host, rule)
    name, colon, number = rule.rpartition(":")
    if colon and number.isdecimal() and ("]" in name or ":" not in name):
        if port != int(number):
            return False
        rule = name
    rule = rule.strip("[]").lstrip("*").lstrip(".")
    return bool(rule) and (host == rule or host.endswith("." + rule))


def _in_network(host: str, rule: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False
