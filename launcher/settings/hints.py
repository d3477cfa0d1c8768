"""The nearest right thing: what a misspelt name was most likely meant to be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKENESS = 0.7  # difflib ratio below which a suggestion confuses more than it helps


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that ``word`` most likely means, or None when nothing is close.

    Case and the difference between ``-`` and ``_`` do not count; the name comes back as ``known`` spells it.  Of
    several names that differ from each other in these only, the first wins.
    """
    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(_fold(name), name)
    exact = folded.get(_fold(word))
    if exact is not None:
        return exact
    from difflib import get_close_matches

    close = get_close_matches(_fold(word), folded, n=1, cutoff=_LIKENESS)
    return folded[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The question for an error's ``todo`` that names the nearest known name; ``otherwise`` when nothing is close."""
    name = nearest(word, known)
    return f"Did you mean {name}?" if name else otherwise


def listed(words: Iterable[str]) -> str:
    """``a, b or c``: how a message lists the values that a setting takes."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


choice = listed


def placeholder(text: str) -> str | None:
    """The first thing in ``text`` that looks like a variable which nobody expanded: ``$NAME``, ``${..}``, ``{{..}}``.

    ``$(NAME)`` counts too: Kubernetes leaves it standing when NAME is not defined.  Of ``${NAME:-default}`` the default
    is left out: it may be a secret.
    """
    if "$" not in text and "{{" not in text:
        return None
    import re

    found = re.search(r"\$(?:[A-Za-z_]\w*|\{[^{}]*\}|\([A-Za-z_]\w*\))|\{\{[^{}]*\}\}", text)
    if found is None:
        return None
    name = re.match(r"\$\{\w*", found[0])
    return found[0] if name is None or found[0] == f"{name[0]}}}" else f"{name[0]}…}}"


def _fold(name: str) -> str:
    return name.casefold().replace("-", "_")
