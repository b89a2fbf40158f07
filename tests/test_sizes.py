"""Limit the size of classes and functions in the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tools.check_docs import ROOT

PACKAGE = ROOT / "oncecast"
METHODS_MAX, ATTRIBUTES_MAX, LINES_MAX = 40, 25, 40
REASON = "# Long"  # how the comment above a larger definition begins

Function = ast.FunctionDef | ast.AsyncFunctionDef


def excess(source: str) -> Iterator[str]:
    """Yield the classes and functions above the limits that give no reason."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | Function) and not gives_reason(node, lines):
            size = size_of_class(node) if isinstance(node, ast.ClassDef) else size_of(node)
            if size:
                yield f"line {node.lineno}: {node.name} has {size}"


def gives_reason(node: ast.ClassDef | Function, lines: list[str]) -> bool:
    """Return whether the comment above a definition and its decorators is a reason."""
    at = min(each.lineno for each in (node, *node.decorator_list)) - 2
    while lines[at].lstrip().startswith("#"):
        if lines[at].lstrip().startswith(REASON):
            return True
        at -= 1
    return False


def size_of(function: Function) -> str:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    return f"{lines} lines" if lines > LINES_MAX else ""


def size_of_class(node: ast.ClassDef) -> str:
    methods = [each for each in node.body if isinstance(each, Function)]
    attributes = len(attributes_of(node, methods))
    if len(methods) > METHODS_MAX or attributes > ATTRIBUTES_MAX:
        return f"{len(methods)} methods and {attributes} attributes"
    return ""


def attributes_of(node: ast.ClassDef, methods: list[Function]) -> set[str]:
    """Return the names that a class declares and those that its methods assign to `self`."""
    declared = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    names = {each.id for each in declared if isinstance(each, ast.Name)}
    for method in methods:
        for each in ast.walk(method):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                names |= {each.attr} if ast.unparse(each.value) == "self" else set()
    return names


@pytest.mark.parametrize("package", sorted(each.name for each in PACKAGE.glob("[!_]*")))
def test_classes_and_functions_stay_small_or_give_a_reason(package: str) -> None:
    path = PACKAGE / package
    files = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    found = [
        f"{file.relative_to(ROOT)} {each}" for file in files for each in excess(file.read_text())
    ]
    assert found == []


LONG = "    pass\n" * LINES_MAX


def test_long_function_needs_a_reason() -> None:
    assert list(excess(f"def work():\n{LONG}")) == [f"line 1: work has {LINES_MAX + 1} lines"]
    assert list(excess(f"# Long: one table.\n@cache\nasync def work():\n{LONG}")) == []


def test_large_class_needs_a_reason() -> None:
    methods = "".join(f"    def m{each}(self): ...\n" for each in range(METHODS_MAX + 1))
    assert list(excess(f"class Large:\n{methods}")) == [
        "line 1: Large has 41 methods and 0 attributes"
    ]
    declared = "".join(f"    a{each}: int\n" for each in range(ATTRIBUTES_MAX))
    set_later = "    def begin(self):\n        self.last = self.a0 = 1\n"
    assert list(excess(f"class Wide:\n{declared}")) == []
    assert list(excess(f"class Wide:\n{declared}{set_later}")) == [
        "line 1: Wide has 1 methods and 26 attributes"
    ]
    assert list(excess(f"# Long: the public face.\nclass Large:\n{methods}")) == []
