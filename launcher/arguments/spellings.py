"""Reading words as ``vllm serve`` would: every spelling that its parser accepts, and what the words then mean.

Three differences from vLLM are meant.  A whole JSON object and dotted fields of one flag are laid over each other (vLLM
silently drops the object); ``--config=FILE`` is read (vLLM silently drops it); secrets leave the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from launcher.arguments.options import Option, Options, is_negative_number, options_of, read_option
from launcher.arguments.typed import check_value, shown
from launcher.arguments.values import SPECULATIVE, Argument, JsonLayer, Parsed, same, spelled
from launcher.errors import ConfigurationError, LauncherError, gathered, shortened
from launcher.logs import masked
from launcher.settings.hints import did_you_mean
from launcher.typing import Any
from launcher.vllm.tables import EngineTable, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.arguments import objects

MODEL = "--model"
CONFIG = "--config"
HELP = "--help"
# Shortcuts for single keys of the speculative configuration.
SHORTCUTS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
# Flags that hold a secret, and the variable in which the child gets it instead.
SECRETS = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
_NO_VALUE = ("switch", "boolean")
_MANY = ("list", "append-list")
_REPEATED = ("append", "append-list")
_DASHES = "‐‑‒–—―−﹘﹣－"  # what a word processor makes of - and --
# What people write behind a flag that takes no value.
_TRUTHS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off"})

ReadConfig = Callable[[str], Mapping[str, Any]]


def parse_words(words: Sequence[str], table: EngineTable, origin: str, read_config: ReadConfig) -> Parsed:
    """Read one source of vLLM arguments.

    ``origin`` names it in provenance and errors.  ``read_config`` gives the mapping of a ``--config`` file, which is
    laid below the words.  Raises ConfigurationError for what vLLM would refuse; all problems of the words are in it.
    """
    options = options_of(table)
    own = _Reading(options, origin).read(words)
    if own.config_file is None:
        return own
    where = f"{origin} ({CONFIG} {shortened(own.config_file)})"
    try:
        below = parse_document(read_config(own.config_file), options, where, abbreviated=True)
    except ConfigurationError as problem:
        raise hidden(problem, own.secrets) from None
    return laid_over(own, below, origin)


def parse_document(document: Mapping[str, Any], options: Options, origin: str, *, abbreviated: bool = False) -> Parsed:
    """Read a mapping of flag names to typed values, as it stands in a ``--config`` file or a runtime configuration."""
    from launcher.arguments import documents  # lazy: few starts have one

    words, problems = documents.words_of(document, options, origin, abbreviated=abbreviated)
    parsed = _Reading(options, origin, problems).read(words)
    if parsed.config_file is not None:
        where = shown(parsed.config_file)
        raise hidden(
            ConfigurationError(f"{origin} names another configuration file, {where}", "Merge the two"), parsed.secrets
        )
    return parsed


def laid_over(own: Parsed, below: Parsed, origin: str) -> Parsed:
    """Two parts of one source as one: what ``own`` says counts, and ``below`` holds the rest."""
    if own.positionals and below.positionals:
        problem = _two_models(origin, own.positionals[0], below.positionals[0])
        raise hidden(problem, own.secrets + below.secrets)
    said = {argument.flag for argument in own.arguments}
    held = {variable for variable, _ in own.secrets}
    kept = tuple(argument for argument in below.arguments if argument.repeats or argument.flag not in said)
    return own._replace(
        arguments=kept + own.arguments,
        layers=own.layers + below.layers,
        positionals=own.positionals or below.positionals,
        rest=own.rest or below.rest,
        secrets=own.secrets + tuple(secret for secret in below.secrets if secret[0] not in held),
        warnings=own.warnings + below.warnings,
    )


def hidden(problem: LauncherError, secrets: Iterable[tuple[str, str]]) -> LauncherError:
    """The same problem in words that show no secret of the place that it was found in; it carries them from now on.

    ``secrets`` as in `Parsed`.
    """
    values = tuple(dict.fromkeys((*problem.secrets, *(value for _, value in secrets))))
    reworded = problem.reworded(lambda text: masked(text, values))
    reworded.secrets = values
    return reworded


def _two_models(origin: str, first: str, second: str) -> ConfigurationError:
    return ConfigurationError(f"{origin}: two models, {shown(first)} and {shown(second)}", "Name the model once")


class _Reading:
    """The state of one pass over the words."""

    def __init__(self, options: Options, origin: str, problems: Sequence[LauncherError] = ()) -> None:
        self.options = options
        self.origin = origin
        self.single: dict[str, Argument] = {}
        self.repeated: list[Argument] = []
        self.objects: dict[str, objects.Document] = {}
        self.fields: dict[str, list[objects.Assignment]] = {}
        self.models: list[str] = []
        self.configs: list[str] = []
        self.secrets: dict[str, tuple[str, ...]] = {}
        self.told: list[tuple[str, str]] = []  # all secrets, those that a later flag replaces included
        self.warnings: list[str] = []
        self.problems: list[LauncherError] = [*problems]

    def read(self, words: Sequence[str]) -> Parsed:
        end = words.index("--") if "--" in words else len(words)
        words, rest = tuple(words[:end]), tuple(words[end:])
        position = 0
        while position < len(words):
            try:
                position = self._step(words, position)
            except ConfigurationError as problem:
                self.problems.append(problem)
                position = _next_option(words, position + 1)
        return self._finished(rest)

    def _step(self, words: Sequence[str], position: int) -> int:
        """Read the option or the model at ``position``; gives the position behind it."""
        word, behind = words[position], position + 1
        option = read_option(word, words[behind] if behind < len(words) else None, self.options, self.origin)
        if option is None:
            self._model(word, words[position - 1] if position else None)
            return behind
        if option.flag is None:
            return self._unknown(option, words, behind)
        if option.path:
            return self._field(option, option.flag, words, behind)
        values, behind = self._values(option, option.flag, words, behind)
        self._note(option, option.flag, values)
        return behind

    def _values(self, option: Option, flag: Flag, words: Sequence[str], start: int) -> tuple[tuple[str, ...], int]:
        if flag.kind in _NO_VALUE:
            if option.inline is not None and flag.name != HELP:
                raise self._takes_no_value(flag)
            return (), start
        if option.inline is not None:
            return (option.inline,), start
        most = len(words) if flag.kind in _MANY else start + 1
        end = start
        while end < min(most, len(words)) and self._is_value(words, end):
            end += 1
        if end == start and flag.kind != "optional":
            if flag.name not in SECRETS:
                raise self._needs_value(option.name)
            # What follows may be the secret with a dash before it: pass over it, so that no message can show it.
            variable = SECRETS[flag.name]
            self.problems.append(
                ConfigurationError(
                    f"{self.origin}: no value follows {flag.name}", f"Set {variable}, which may begin with a dash"
                )
            )
            known = end == len(words) or self._is_known(words[end])
            return (), end if known else _next_option(words, end + 1)
        return tuple(words[start:end]), end

    def _is_value(self, words: Sequence[str], position: int) -> bool:
        """A word with a space that is no option is a value, whatever it begins with."""
        word = words[position]
        following = words[position + 1] if position + 1 < len(words) else None
        try:
            option = read_option(word, following, self.options, self.origin)
        except ConfigurationError:  # an ambiguous option is still one
            return False
        return option is None or (option.flag is None and " " in word)

    def _is_known(self, word: str) -> bool:
        """Whether a word is one of vLLM's options.

        vLLM takes whatever follows a dotted field for its value.  An option there means a forgotten value, and may hold
        a secret.
        """
        try:
            option = read_option(word, None, self.options, self.origin)
        except ConfigurationError:  # ambiguous among them
            return True
        return option is not None and option.flag is not None

    def _note(self, option: Option, flag: Flag, values: tuple[str, ...]) -> None:
        if flag.name in SECRETS and values:
            self._secret(flag, values)
            return
        for value in values:
            check_value(flag, value, self.origin)
        if flag.name == MODEL:
            self.models.append(values[0])
        elif flag.name == CONFIG:
            self.configs.append(values[0])
        elif flag.name in SHORTCUTS:
            self._shortcut(flag, values[0])
        elif flag.type == "json" and flag.kind == "value":
            self._object(flag, values[0])
        else:
            self._argument(option, flag, values)

    def _argument(self, option: Option, flag: Flag, values: tuple[str, ...]) -> None:
        words = (option.word,) if option.inline is not None else spelled(option.word, values)
        repeats = flag.kind in _REPEATED
        argument = Argument(flag.name, values, option.negated, words, self.origin, repeats)
        if repeats:
            self.repeated.append(argument)
        else:
            self.single.pop(flag.name, None)  # the last one counts, and stands where it stood
            self.single[flag.name] = argument

    def _secret(self, flag: Flag, values: tuple[str, ...]) -> None:
        variable = SECRETS[flag.name]
        if any("\0" in value for value in values):
            raise ConfigurationError(
                f"{self.origin}: there is a NUL character in the value of {flag.name}", "Remove it"
            )
        self.secrets[variable] = held = tuple(value for value in values if value not in ("", "None"))
        if not held:
            return
        self.told += [(variable, value) for value in held]
        instead = (
            f"vLLM gets it as {variable} instead; set {variable} or {variable}_FILE"
            if len(held) == 1
            else "vLLM gets them in a private file instead"
        )
        # Behind the colon nothing is taken for the secret itself when this is printed.
        self.warnings.append(f"{self.origin}, {flag.name}: a list of processes would show what is secret; {instead}")

    def _shortcut(self, flag: Flag, value: str) -> None:
        if value in ("", "None"):
            return
        typed = int(value) if flag.type == "int" else value
        from launcher.arguments import objects  # lazy: most command lines hold no JSON

        self.fields.setdefault(SPECULATIVE, []).append(objects.Assignment((SHORTCUTS[flag.name],), typed, False))

    def _object(self, flag: Flag, text: str) -> None:
        where = f"{self.origin}: {flag.name}"
        if flag.name in self.objects:
            self.warnings.append(f"{where} is given more than one whole object; the last counts")
        from launcher.arguments import objects  # lazy: most command lines hold no JSON

        self.objects[flag.name] = document = objects.read_object(text, where, units=flag.units)
        self.warnings += document.warnings

    def _field(self, option: Option, flag: Flag, words: Sequence[str], behind: int) -> int:
        written = ".".join((option.name, *option.path))
        if flag.type != "json":
            raise ConfigurationError(
                f"{self.origin}: {shortened(written)}: there are no fields of {flag.name}",
                "Only a flag that takes JSON has some; give the value to the flag itself",
            )
        text = option.inline
        if text is None:
            if behind == len(words) or self._is_known(words[behind]):
                raise self._needs_value(written)
            text, behind = words[behind], behind + 1
        path = option.path
        if flag.name == SPECULATIVE:
            path = (path[0].replace("-", "_"), *path[1:])
        from launcher.arguments import objects  # lazy: most command lines hold no JSON

        value = text.split(",") if option.extends else objects.field_value(text)
        self.fields.setdefault(flag.name, []).append(objects.Assignment(path, value, option.extends))
        return behind

    def _unknown(self, option: Option, words: Sequence[str], behind: int) -> int:
        """A newer vLLM may know the flag: then it passes as it came, with the words that are no option."""
        if self.options.exact:
            raise ConfigurationError(
                f"{self.origin}: vLLM {self.options.version} has no option {shortened(option.name)}",
                did_you_mean(option.name, self.options.flags, "See 'vllm serve --help=all' for all of them"),
            )
        end = behind
        if option.path and option.inline is None:
            end += behind < len(words) and not self._is_known(words[behind])
        elif option.inline is None:
            end = _next_option(words, behind)
        self.warnings.append(
            f"{self.origin}: {shortened(option.name)} is no option of vLLM {self.options.version}, the newest known "
            "here; it is passed on unread"
        )
        values = tuple(words[behind:end])
        passed = spelled(option.word, values) if not option.path else (option.word, *values)
        inline = () if option.inline is None else (option.inline,)
        self.repeated.append(Argument(option.name, inline + values, False, passed, self.origin, repeats=True))
        return end

    def _model(self, word: str, before: str | None) -> None:
        if word.casefold() in _TRUTHS and before is not None and before.startswith("-"):
            option = read_option(before, None, self.options, self.origin)
            if option is not None and option.flag is not None and option.flag.kind in _NO_VALUE:
                raise self._takes_no_value(option.flag)
        if word[:1] and word[0] in _DASHES:
            raise self._typographic(word)
        self.models.append(word)

    def _typographic(self, word: str) -> ConfigurationError:
        """The refusal of a flag with a dash of a word processor's; what may be its value is not shown."""
        name = word.partition("=")[0].split()[0]
        bare = name.lstrip(f"-{_DASHES}")
        plain = next((flag for flag in (f"--{bare}", f"-{bare}") if self._is_known(flag)), f"--{bare}")
        return ConfigurationError(
            f"{self.origin}: {shown(name)} begins with a typographic dash, U+{ord(word[0]):04X}",
            f"Write {shortened(plain)} with plain ones",
        )

    def _needs_value(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.origin}: {name} needs a value", f"Write {name} VALUE, or {name}=VALUE where it begins with a dash"
        )

    def _takes_no_value(self, flag: Flag) -> ConfigurationError:
        off = f", or {flag.negatives[0]} to switch it off" if flag.negatives else ""
        return ConfigurationError(f"{self.origin}: {flag.name} takes no value", f"Write {flag.name} alone{off}")

    def _finished(self, rest: tuple[str, ...]) -> Parsed:
        if len(self.models) > 1:
            self.problems.append(_two_models(self.origin, self.models[0], self.models[1]))
        if len(self.configs) > 1:
            self.problems.append(
                ConfigurationError(
                    f"{self.origin}: two configuration files, {shown(self.configs[0])} and {shown(self.configs[1])}",
                    "Merge them; vLLM takes one",
                )
            )
        layers = self._layers()
        if self.problems:
            raise hidden(gathered(self.problems), self.told)
        return Parsed(
            arguments=(*self.single.values(), *self.repeated),
            layers=layers,
            positionals=tuple(self.models),
            rest=rest,
            secrets=tuple((variable, value) for variable, values in self.secrets.items() for value in values),
            config_file=self.configs[0] if self.configs else None,
            warnings=tuple(self.warnings),
        )

    def _layers(self) -> tuple[JsonLayer, ...]:
        layers = []
        for flag in dict.fromkeys((*self.objects, *self.fields)):
            try:
                layers.append(JsonLayer(flag, self._layer(flag), self.origin))
            except ConfigurationError as problem:
                self.problems.append(problem)
        return tuple(layers)

    def _layer(self, flag: str) -> Mapping[str, Any] | None:
        from launcher.arguments import objects  # lazy: most command lines hold no JSON

        where = f"{self.origin}: {flag}"
        whole = self.objects.get(flag, objects.Document({}))
        fields = self.fields.get(flag, [])
        if whole.value is None:
            if not fields:
                return None
            self.warnings.append(f"{where} is switched off, and single fields of it are given; the fields count")
        base, clashes = _with_underscores(flag, whole.value or {})
        value, overlaid = objects.overlay(base, fields, where)
        for key in dict.fromkeys((*clashes, *overlaid)):
            self.warnings.append(f"{where} gives {key} twice, with different values; the last counts")
        return value


def _with_underscores(flag: str, value: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The speculative configuration with its keys as vLLM reads them, and the keys that then differ."""
    if flag != SPECULATIVE:
        return value, ()
    read: dict[str, Any] = {}
    clashes = []
    for spelling, inner in value.items():
        key = spelling.replace("-", "_")
        if key in read and not same(read[key], inner):
            clashes.append(key)
        read[key] = inner
    return read, tuple(clashes)


def _next_option(words: Sequence[str], start: int) -> int:
    """Where the next word stands that looks like an option."""
    end = start
    while end < len(words) and (not words[end].startswith("-") or is_negative_number(words[end])):
        end += 1
    return end
