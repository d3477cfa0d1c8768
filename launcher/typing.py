"""The names of `typing` that this package uses, without its import and at a tenth of its price at run time.

A type checker sees `typing` itself.  At run time annotations are never evaluated here (each module says so with
``from __future__ import annotations``), so that of all the names only `NamedTuple` has to do anything.
docs/performance.md has the figures.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Any
    from typing import Generic as Generic
    from typing import NamedTuple as NamedTuple
    from typing import NoReturn as NoReturn
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import TypeVar as TypeVar
    from typing import cast as cast
else:
    from operator import itemgetter

    Any = NoReturn = Self = Protocol = object
    TypeVar = str  # its name is all that is left of it

    def cast(kind, value):
        return value

    class Generic:
        """``Generic[T]`` and, of a subclass, ``Given[str]`` mean nothing more than the class."""

        def __class_getitem__(cls, parameter):
            return cls

    class NamedTuple(tuple):
        """A tuple with named fields: a subclass's annotations are the names, its attributes the defaults.

        One constructor serves all subclasses; that of `typing` compiles one for each, which takes longer than the rest
        of an import.
        """

        def __init_subclass__(cls):
            cls._fields = cls.__match_args__ = tuple(cls.__annotations__)
            cls._field_defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
            for position, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(position)))

        def __new__(cls, *given, **named):
            if named or len(given) != len(cls._fields):
                given = cls._completed(given, named)
            return tuple.__new__(cls, given)

        @classmethod
        def _completed(cls, given, named):
            """``given`` with the other fields behind it, by name or by default."""
            values = {**cls._field_defaults, **named}
            try:
                rest = [values.pop(name) for name in cls._fields[len(given) :]]
            except KeyError:
                rest = None
            if rest is None or len(given) > len(cls._fields) or not named.keys().isdisjoint(values):
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            return (*given, *rest)

        _make = classmethod(tuple.__new__)

        def _replace(self, **changes):
            return type(self)(**{**self._asdict(), **changes})

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self):
            return tuple(self)
