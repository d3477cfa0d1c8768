"""Path maths: where the workspace, the draft's link and the neutral link lie.  Touches no file.

The workspace is a real folder of links: one for each top-level entry of the target, and one for the draft.  vLLM is
pointed at it and never at the sources, which stay untouched and may be read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from launcher.errors import ConfigurationError
from launcher.typing import NamedTuple, Self

OWN_PREFIX = ".specdec-"  # names of our own inside a workspace; no link is ever called so
API_KEYS = f"{OWN_PREFIX}api-keys.yaml"
LOGGING = f"{OWN_PREFIX}logging.json"
NEUTRAL_DRAFT = "draft"
# Parents for a neutral link, tried in order after the scratch folder: paths that hold no word vLLM looks for.
NEUTRAL_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")


class Link(NamedTuple):
    """A symbolic link: ``name`` inside the workspace (or absolute), ``to`` an absolute path."""

    name: str
    to: str


class Layout(NamedTuple):
    """Everything that must exist on disk before exec.

    ``model`` is the path handed to vLLM: the workspace, or the neutral link when the workspace's own name would make
    vLLM change the method.
    """

    workspace: str
    links: tuple[Link, ...]  # inside the workspace, sorted by name
    model: str
    draft: str | None  # absolute path handed to vLLM as the draft
    neutral: Link | None  # a link outside the workspace that points at it

    def relocated(self, workspace: str) -> Self:
        """The same layout in another folder, used when the first one belongs to a running server."""
        if workspace == self.workspace:
            return self
        neutral: Link | None = None
        if self.neutral is not None:
            neutral = Link(_neutral_name(_parent(self.neutral.name), workspace), workspace)
        model = workspace if neutral is None else neutral.name
        draft = self.draft
        if draft is not None and draft.startswith(f"{self.model}/"):
            draft = model + draft[len(self.model) :]
        return self._replace(workspace=workspace, model=model, draft=draft, neutral=neutral)


class Placement(NamedTuple):
    """A draft's files: ``source`` is absolute; ``as_is`` says that the user pointed at that very path."""

    name: str
    source: str
    as_is: bool


def top_level(paths: Iterable[str]) -> tuple[str, ...]:
    """The distinct first components of relative paths, sorted."""
    names = dict.fromkeys([path.partition("/")[0] if "/" in path else path for path in paths])
    return tuple(sorted(names))  # which is quick where ``paths`` are sorted, as those of a listing are


def arrange(
    workspace: str,
    target: str,
    entries: Iterable[str],
    draft: Placement | None,
    changes_method: Callable[[str], bool],
    scratch: str,
) -> Layout:
    """Lay out a launch.

    ``entries`` are the top-level names of the target folder.  ``changes_method`` tells whether vLLM would replace the
    method because of a path's wording; such a path is handed over under a neutral name instead.  Raises
    ConfigurationError when the draft's name would hide a file of the target.
    """
    links = {name: Link._make((name, f"{target}/{name}")) for name in entries if not name.startswith(OWN_PREFIX)}
    draft_path: str | None = None
    if draft is not None:
        name = NEUTRAL_DRAFT if changes_method(f"/{draft.name}") else draft.name
        if not draft.as_is or changes_method(draft.source):
            links[name] = Link(name, draft.source)
            draft_path = f"{workspace}/{name}"
        else:
            draft_path = draft.source
    neutral: Link | None = None
    if changes_method(workspace):
        parent = next(path for path in (scratch, *NEUTRAL_PARENTS) if not changes_method(path))
        neutral = Link(_neutral_name(parent, workspace), workspace)
        if draft_path is not None and draft_path.startswith(f"{workspace}/"):
            draft_path = neutral.name + draft_path[len(workspace) :]
    model = neutral.name if neutral else workspace
    return Layout(workspace, tuple([links[name] for name in sorted(links)]), model, draft_path, neutral)


def refuse_hidden_file(draft_name: str, target_files: Iterable[str], origin: str) -> None:
    """Raise ConfigurationError when a draft called ``draft_name`` would hide a file of the target in the workspace."""
    if draft_name in target_files:
        raise ConfigurationError(
            f"{origin}: the draft is called {draft_name!r}, which is a file of the target",
            "Give the draft another bare name, such as 'draft'",
        )


def _neutral_name(parent: str, workspace: str) -> str:
    from zlib import crc32  # lazy: few workspaces need one

    # The checksum keeps two workspaces apart; the same workspace always gets the same name, so plans stay byte-equal.
    return f"{parent}/specdec-{crc32(workspace.encode()):08x}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
