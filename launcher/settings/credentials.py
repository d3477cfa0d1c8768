"""The credentials: from the environment or from the files that NAME_FILE variables name."""

from __future__ import annotations

from collections.abc import Callable

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NotFoundError
from launcher.settings.names import named_like_a_secret
from launcher.settings.reading import Reading
from launcher.settings.values import Secret
from launcher.settings.variables import CANONICAL, VARIABLES, Variable
from launcher.typing import NamedTuple

ReadText = Callable[[str], str]
_MARK = "\ufeff"  # what some editors put in front of UTF-8


class Credentials(NamedTuple):
    secrets: tuple[tuple[str, Secret], ...]
    child_environment: tuple[tuple[str, Secret], ...]  # those that the child would not find, or not find clean


def read_credentials(reading: Reading, read_text: ReadText) -> Credentials:
    """Every credential that is set, stripped.  What is wrong with one goes to ``reading`` and never shows the value."""
    secrets: list[tuple[str, Secret]] = []
    for row in VARIABLES:
        if row.secret:
            value = read_credential(reading, row, read_text)
            if value is not None:
                secrets.append((row.name, Secret(value)))
    child = tuple(pair for pair in secrets if reading.environ.get(pair[0]) != pair[1].reveal())
    return Credentials((*secrets, *_strangers(reading)), child)


def read_credential(reading: Reading, row: Variable, read_text: ReadText) -> str | None:
    """One credential, stripped; what is wrong with it goes to ``reading``."""
    given = reading.given(row.name)
    files = [file for file in row.files if reading.is_set(file)]
    if given and files:
        reading.problems.append(ConfigurationError(f"{given.origin} and {files[0]} are both set", "Keep one of them"))
        return None
    if given:
        return _checked(reading, given.value, given.origin)
    if not files:
        return None
    reading.remark_aliases(row, files, "_FILE")
    return _from_file(reading, files[0], read_text)


def _from_file(reading: Reading, file: str, read_text: ReadText) -> str | None:
    path = reading.environ[file].strip()
    try:
        value = read_text(path).removeprefix(_MARK).strip()
    except (OSError, ValueError) as problem:
        reading.problems.append(_unreadable(file, reading.shown(path), problem))
        return None
    reading.hidden.append(value)
    if not value:
        hint = f"Write the credential into it, or unset {file}"
        reading.problems.append(ConfigurationError(f"{file}: the file {reading.shown(path)} is empty", hint))
        return None
    return _checked(reading, value, file)


def _checked(reading: Reading, value: str, origin: str) -> str | None:
    if len(value.split()) > 1:
        todo = "A credential is one word: look for a line break or a second value (the value is not shown)"
        reading.problems.append(ConfigurationError(f"{origin} holds white space inside the credential", todo))
        return None
    if not value.isprintable():
        todo = "Save it as plain text: no byte order mark, no control character (the value is not shown)"
        reading.problems.append(ConfigurationError(f"{origin} holds an invisible character in the credential", todo))
        return None
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        reading.warnings.append(f"{origin} holds quotes around the credential, which will be sent with it")
    return value


def _unreadable(file: str, path: str, problem: OSError | ValueError) -> LauncherError:
    if isinstance(problem, FileNotFoundError | NotADirectoryError):
        return NotFoundError(f"{file}: the file {path} does not exist", "Check that the secret is mounted")
    if isinstance(problem, PermissionError):
        return DeniedError(f"{file}: the file {path} may not be read", "Check its mode and owner")
    reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
    return ConfigurationError(f"{file}: the file {path} cannot be read ({reason})")


def _strangers(reading: Reading) -> list[tuple[str, Secret]]:
    """What other programs call a credential: none of ours to use, but to mask."""
    return [
        (name, Secret(value.strip()))
        for name, value in sorted(reading.environ.items())
        if named_like_a_secret(name) and name not in CANONICAL and value.strip() in reading.hidden
    ]
