"""Which model classes of a vLLM source tree really feed an EAGLE3 draft, found without importing one of them.

Importing is no way: many classes need packages or devices that the machine which makes the tables lacks.  The marker
interface alone is no proof either: a class can inherit ``SupportsEagle3`` and put a decoder of its own behind it whose
``forward`` never returns the auxiliary hidden states (MiMo does); vLLM then dies while it profiles.  So two questions
are asked of the syntax trees: does the class carry the marker, through whatever bases; and does the ``forward`` that
its decoder ends up with speak of auxiliary states, itself or through what it calls.

Where a package chooses an implementation by platform, the NVIDIA one is followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

MARKER = "SupportsEagle3"
DECODER_MARKER = "EagleModelMixin"
OTHER_PLATFORMS = frozenset({"amd", "cpu", "xpu", "tpu", "vl_stub"})
# Attributes under which a class keeps its decoder, in the order vLLM looks for it.
DECODERS = ("language_model", "decoder", "model")


class Class(NamedTuple):
    """A class definition and the module it stands in."""

    module: str
    node: ast.ClassDef


class Support(NamedTuple):
    """What a class does for EAGLE3.  ``reason`` is for people who read the tool's output."""

    works: bool
    over_stages: bool  # also with pipeline parallelism
    reason: str


class Tree:
    """The classes of one unpacked ``vllm`` package."""

    def __init__(self, root: Path) -> None:
        """``root`` is the folder that holds ``vllm/``."""
        self.root = root
        self.module = cache(self._module)

    def _path(self, module: str) -> Path | None:
        base = self.root / module.replace(".", "/")
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def _module(self, module: str) -> tuple[dict[str, ast.ClassDef], dict[str, list[tuple[str, str]]]]:
        """Classes defined in a module, and names it imports from elsewhere (all branches of a choice)."""
        path = self._path(module)
        if path is None:
            return {}, {}
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        classes: dict[str, ast.ClassDef] = {}
        imports: dict[str, list[tuple[str, str]]] = {}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                origin = _absolute(package, node.module or "", node.level)
                for alias in node.names:
                    imports.setdefault(alias.asname or alias.name, []).append((origin, alias.name))
        return classes, imports

    def find(self, module: str, name: str) -> Class | None:
        """The class that ``name`` means in ``module``."""
        classes, imports = self.module(module)
        if name in classes:
            return Class(module, classes[name])
        choices = [c for c in imports.get(name, []) if not OTHER_PLATFORMS & set(c[0].split("."))]
        for origin, original in choices:
            if origin.startswith("vllm.") and (found := self.find(origin, original)):
                return found
        # A package that hands out its classes through __getattr__ names them nowhere: look where they live.
        if not choices and self._path(f"{module}.nvidia.model") and name in self.module(f"{module}.nvidia.model")[0]:
            return self.find(f"{module}.nvidia.model", name)
        return None

    def lineage(self, start: Class) -> list[Class]:
        """The class and its bases inside vLLM, nearest first."""
        found = [start]
        for base in start.node.bases:
            name = base.id if isinstance(base, ast.Name) else None
            if name and (parent := self.find(start.module, name)):
                found += [known for known in self.lineage(parent) if known not in found]
        return found

    def definition(self, lineage: list[Class], name: str, below: int = 0) -> tuple[int, ast.stmt] | None:
        """The method or class attribute called ``name`` that wins, and whose it is (position in the lineage).

        ``below`` starts the search there: ``super()`` of a method at position p is ``below=p + 1``.
        """
        for position, owner in enumerate(lineage[below:], below):
            for node in owner.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return position, node
                if isinstance(node, ast.AnnAssign | ast.Assign) and name in _targets(node) and node.value is not None:
                    return position, node
        return None

    def support(self, start: Class, registry: dict[str, tuple[str, str]]) -> Support | None:
        """What ``start`` does for EAGLE3; None where it carries no marker.

        ``registry`` maps an architecture to its module and class name.
        """
        lineage = self.lineage(start)
        if MARKER not in (owner.node.name for owner in lineage):
            return None
        decoder = self.decoder(lineage, registry)
        if decoder is None:
            return Support(True, False, "the checkpoint chooses the decoder")
        inner = self.lineage(decoder)
        name = decoder.node.name
        own_setter = self._owner(lineage, "set_aux_hidden_state_layers") != MARKER
        if not own_setter and DECODER_MARKER not in (owner.node.name for owner in inner):
            return Support(False, False, f"{name} is no {DECODER_MARKER}")
        if not self._returns_states(inner, "forward"):
            return Support(False, False, f"{name}.forward returns no auxiliary states")
        return Support(True, self._flag(inner, "supports_aux_hidden_states_over_pp"), name)

    def _owner(self, lineage: list[Class], name: str) -> str:
        found = self.definition(lineage, name)
        return lineage[found[0]].node.name if found else ""

    def _flag(self, lineage: list[Class], name: str) -> bool:
        found = self.definition(lineage, name)
        value = getattr(found[1], "value", None) if found else None
        return isinstance(value, ast.Constant) and value.value is True

    def decoder(self, lineage: list[Class], registry: dict[str, tuple[str, str]]) -> Class | None:
        """The class behind ``self.language_model.model`` or ``self.model``; the class itself if it holds none."""
        for position, owner in enumerate(lineage):
            for attribute in DECODERS:
                for value in _assigned(owner.node, attribute):
                    inner = self._made(lineage, position, value, registry)
                    if inner is None:
                        return None
                    return self.decoder(self.lineage(inner), registry)
        return lineage[0]

    def _made(
        self, lineage: list[Class], position: int, value: ast.expr, registry: dict[str, tuple[str, str]]
    ) -> Class | None:
        """The class that an expression in the class at ``position`` makes an instance of."""
        if not isinstance(value, ast.Call):
            return None
        if isinstance(value.func, ast.Name):
            if made := self.find(lineage[position].module, value.func.id):
                return made
            return self._registered(value, registry)
        if isinstance(value.func, ast.Attribute) and (found := self.definition(lineage, value.func.attr)):
            where, node = found
            if isinstance(node, ast.FunctionDef):
                returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
                return self._made(lineage, where, returned[-1], registry) if returned else None
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name):
                return self.find(lineage[where].module, node.value.id)
        return None

    def _registered(self, call: ast.Call, registry: dict[str, tuple[str, str]]) -> Class | None:
        """The class of the architecture that a call names literally."""
        for node in ast.walk(call):
            if isinstance(node, ast.List) and len(node.elts) == 1 and isinstance(node.elts[0], ast.Constant):
                entry = registry.get(str(node.elts[0].value))
                return self.find(*entry) if entry else None
        return None

    def _returns_states(self, lineage: list[Class], method: str, below: int = 0) -> bool:
        """Whether the winning definition of ``method`` speaks of auxiliary states, itself or through its own calls."""
        found = self.definition(lineage, method, below)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            return False
        position, node = found
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute) and "aux_hidden_state" in _name(part):
                return True
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr != method:
                if ast.unparse(part.func.value) == "self" and self._returns_states(lineage, part.func.attr):
                    return True
            elif isinstance(part, ast.Call) and ast.unparse(part.func) == f"super().{method}":
                return self._returns_states(lineage, method, position + 1)
        return False


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _assigned(node: ast.ClassDef, attribute: str) -> Iterator[ast.expr]:
    """What a class assigns to ``self.<attribute>``, in the order of its text."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if any(isinstance(t, ast.Attribute) and ast.unparse(t) == f"self.{attribute}" for t in targets):
                yield part.value


def _absolute(package: str, module: str, level: int) -> str:
    if not level:
        return module
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, module] if module else base)
