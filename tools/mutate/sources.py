"""Read source files and split them into units to mutate: functions, methods and constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2s
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Unit:
    """A function or method that is not nested in another one, or one numeric module constant."""

    file: str  # relative to the package
    name: str  # qualified; a second unit with the same name gets the suffix #2
    node: Function | ast.Assign | ast.AnnAssign
    text: str

    @property
    def qualname(self) -> str:
        return self.name.partition("#")[0]

    @property
    def key(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def first(self) -> int:
        """Return the line of the first decorator or the definition, as `co_firstlineno` does."""
        decorators: list[ast.expr] = getattr(self.node, "decorator_list", [])
        return min([self.node.lineno, *(each.lineno for each in decorators)])

    @property
    def last(self) -> int:
        return self.node.end_lineno or self.node.lineno

    @cached_property
    def digest(self) -> str:
        return digest(self.text)

    def mentions(self, name: str) -> bool:
        return re.search(rf"\b{name}\b", self.text) is not None


@dataclass(eq=False)
class Source:
    """A parsed file and its units."""

    path: Path
    file: str  # relative to the package
    tree: ast.Module
    units: list[Unit]

    @property
    def functions(self) -> list[Unit]:
        return [unit for unit in self.units if isinstance(unit.node, Function)]

    def unit_at(self, line: int) -> Unit | None:
        return next((each for each in self.functions if each.first <= line <= each.last), None)


def read(path: Path, package: Path) -> Source:
    text = path.read_text()
    tree = ast.parse(text)
    file = path.relative_to(package).as_posix()
    lines = text.splitlines()
    units: list[Unit] = []
    seen: dict[str, int] = {}
    for name, node in _units(tree, ""):
        seen[name] = seen.get(name, 0) + 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        unit = Unit(file, unique, node, "")
        unit.text = "\n".join(lines[unit.first - 1 : unit.last])
        units.append(unit)
    return Source(path, file, tree, units)


def digest(text: str) -> str:
    return blake2s(text.encode(), digest_size=4).hexdigest()


def _units(
    parent: ast.AST, prefix: str
) -> Iterator[tuple[str, Function | ast.Assign | ast.AnnAssign]]:
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + node.name, node
            case ast.ClassDef():
                yield from _units(node, f"{prefix}{node.name}.")
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
            ) if not prefix and node.value is not None and _numeric(node.value):
                yield name, node
            case ast.If() | ast.Try():
                yield from _units(node, prefix)
            case _:
                pass


def _numeric(node: ast.expr) -> bool:
    """Return whether an expression consists of numbers only."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return _numeric(left) and _numeric(right)
        case ast.UnaryOp(operand=operand):
            return _numeric(operand)
        case _:
            return False
