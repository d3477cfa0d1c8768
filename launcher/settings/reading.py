"""One pass over the environment: what each variable says, and all that is wrong with it, gathered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from launcher.errors import ConfigurationError, LauncherError, shortened
from launcher.logs import covered, masked
from launcher.settings import scalars
from launcher.settings.hints import placeholder
from launcher.settings.names import named_like_a_secret, service_links
from launcher.settings.values import Given
from launcher.settings.variables import BY_NAME, VARIABLES, Variable
from launcher.typing import TypeVar

T = TypeVar("T")

_LONGEST = 100  # characters of a value that a message shows
_SHORTEST_STRANGER = 8  # a shorter value under a secret-looking name of somebody else's is rather "true" or a number


class Reading:
    """Collects problems, warnings and notes while the variables are read, each of them once.

    Texts may hold anything until `mask` has gone over them.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.links = service_links(environ)
        self.problems: list[LauncherError] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.hidden = _values_to_hide(environ)

    def is_set(self, name: str) -> bool:
        return name not in self.links and bool(self.environ.get(name, "").strip())

    def given(self, name: str, blanks: str | None = None) -> Given[str] | None:
        """The text of a variable, found under its own name or an alias, without surrounding ``blanks``."""
        row = BY_NAME[name]
        spellings = [spelling for spelling in row.spellings if self.is_set(spelling)]
        if not spellings:
            return None
        origin = spellings[0]
        text = self.environ[origin].strip(blanks)
        self.remark_aliases(row, spellings)
        if "\0" in text:
            self.problems.append(ConfigurationError(f"{origin} holds a NUL character"))
            return None
        guess = placeholder(text)
        if guess and (not row.secret or guess == text):
            piece = "" if row.secret else f" ({self.shown(guess)})"
            self.warnings.append(f"{origin} holds what looks like an unexpanded variable{piece}")
        return Given(text, origin)

    def read(self, name: str, reader: Callable[[str], T]) -> Given[T] | None:
        """The value of a variable; None where it is not set, and where it cannot be read (a problem then)."""
        given = self.given(name)
        if given is None:
            return None
        try:
            return Given(reader(given.value), given.origin)
        except scalars.Unreadable as problem:
            # Words may hold a secret that nobody has recognised yet: they are not shown.
            value = "" if BY_NAME[name].type == "words" else f"{self.shown(given.value)}, which is "
            self.problems.append(ConfigurationError(f"{given.origin} is {value}not {problem.expected}", problem.todo))
            return None

    def boolean(self, name: str) -> Given[bool] | None:
        return self.read(name, scalars.boolean)

    def is_on(self, name: str) -> bool:
        given = self.boolean(name)
        return given is not None and given.value

    def choice(self, name: str) -> str:
        """One of the row's choices; its default when not set or not readable."""
        row = BY_NAME[name]
        synonyms = dict(row.synonyms)
        given = self.read(name, lambda text: scalars.choice(synonyms.get(text.upper(), text), row.choices))
        return given.value if given else row.default or ""

    def shown(self, text: str) -> str:
        """``text`` for a message: masked, shortened, quoted."""
        return repr(shortened(masked(text, self.hidden), _LONGEST))

    def cover(self, text: str) -> str:
        return covered(text, self.hidden)

    def mask(self, text: str) -> str:
        return masked(text, self.hidden)

    def remark_aliases(self, row: Variable, spellings: Sequence[str], ending: str = "") -> None:
        """Warn of the older ones among ``spellings``, of which the first counts; all end with ``ending``."""
        first, *others = spellings
        if first != row.name + ending:
            self.warnings.append(f"{first} is read as {row.name}{ending}: please rename it")
        value = self.environ[first].strip()
        for other in others:
            text = self.environ[other].strip()
            if scalars.same(row.type, text, value):
                continue
            if row.secret:
                self.warnings.append(f"{other} is ignored: {first} is set, to something else")
            else:
                self.warnings.append(f"{other} is {self.shown(text)} and ignored: {first} is {self.shown(value)}")


def _values_to_hide(environ: Mapping[str, str]) -> list[str]:
    """Our credentials, what is named like one, and what may be a key where the name of its file belongs."""
    ours = {spelling for row in VARIABLES if row.secret for spelling in row.spellings}
    files = {file for row in VARIABLES for file in row.files}
    found: dict[str, None] = {}
    for name, value in environ.items():
        bare = value.strip()
        if (
            name in ours
            or (named_like_a_secret(name) and len(bare) >= _SHORTEST_STRANGER)
            or (name in files and not bare.startswith(("/", ".")))
        ):
            found[bare] = None
    return list(found)
