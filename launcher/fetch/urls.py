"""Addresses of services, before anything is asked of them (pure)."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_web_address(url: str) -> bool:
    """Whether ``url`` begins with http or https and what can be a host: http.client would say so only when it asks."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and len(parts.netloc.split()) == 1 and parts.netloc.isprintable()
