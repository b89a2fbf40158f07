"""Mutation operators: small changes to a unit that a test should detect.

A mutant sets one field of one syntax node. Operators skip code that does not affect behaviour:
annotations, docstrings, assertions (and `strict=True`), the arguments of a `raise`, formatted
strings, `__repr__`, and the order of calls that only set timers.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.mutate.sources import Function, Source, Unit, digest

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
OPAQUE = (ast.Assert, ast.Raise, ast.JoinedStr, ast.arg, ast.pattern)
ASSERTING = ("strict",)
TIMERS = ("later", "cancel")
UNTESTED = ("__repr__", "__str__")


@dataclass(eq=False)
class Mutant:
    """One change of one unit. `plant` applies it to the syntax tree, `uproot` reverts it."""

    unit: Unit
    operator: str
    before: str
    after: str
    occurrence: int
    lines: range  # a test must reach one of these lines; if empty, any line of the unit
    parent: ast.AST
    field: str
    value: Any

    @property
    def id(self) -> str:
        change = "\0".join([self.operator, self.before, self.after, str(self.occurrence)])
        return f"{self.unit.key}:{digest(change)}"

    @property
    def line(self) -> int:
        return self.lines.start or self.unit.node.lineno

    def plant(self) -> None:
        self.old = getattr(self.parent, self.field)
        setattr(self.parent, self.field, self.value)

    def uproot(self) -> None:
        setattr(self.parent, self.field, self.old)

    def diff(self) -> str:
        """Show the change as a unified diff of the unit."""
        before = ast.unparse(self.unit.node).splitlines()
        self.plant()
        after = ast.unparse(self.unit.node).splitlines()
        self.uproot()
        lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
        return "\n".join(line for line in lines if not line.startswith("@@"))


def mutants(source: Source) -> list[Mutant]:
    """Return every mutant of a file, in the order of its text."""
    found: list[Mutant] = []
    for unit in source.units:
        if unit.node.__class__ in (ast.Assign, ast.AnnAssign) or (
            isinstance(unit.node, Function) and unit.node.name not in UNTESTED
        ):
            found.extend(_Unit(unit).mutants())
    return found


class _Unit:
    """Walks over one unit and proposes changes."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.seen: dict[tuple[str, str, str], int] = {}
        self.links: dict[ast.AST, tuple[ast.AST, str, int]] = {}
        self.statement: ast.stmt = unit.node
        returns: ast.expr | None = getattr(unit.node, "returns", None)
        self.returns = ast.unparse(returns) if returns is not None else ""
        for parent in ast.walk(unit.node):
            for field, value in ast.iter_fields(parent):
                for at, child in enumerate(value if isinstance(value, list) else [value]):
                    if isinstance(child, ast.AST):
                        self.links[child] = parent, field, at if isinstance(value, list) else -1

    def mutants(self) -> Iterator[Mutant]:
        node = self.unit.node
        if not isinstance(node, Function):
            if node.value is not None:
                yield from self._walk(node.value)
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                yield from self._walk(default)
        body = _without_docstring(node.body)
        if self.returns == "None" and len(body) > 1 and node.name != "__init__":
            yield self._change("empty", node, "body", [ast.Pass()], "the whole body", "pass")
        yield from self._block(node, "body", body)

    # -- walking --

    def _block(self, parent: ast.AST, field: str, body: list[ast.stmt]) -> Iterator[Mutant]:
        for at, statement in enumerate(body):
            outer, self.statement = self.statement, statement
            yield from self._of_statement(statement)
            if at + 1 < len(body) and _order_matters(statement, body[at + 1]):
                whole: list[ast.stmt] = getattr(parent, field)
                index = whole.index(statement)
                swapped = [*whole[:index], whole[index + 1], statement, *whole[index + 2 :]]
                texts = _text(statement), _text(body[at + 1])
                yield self._change("swap", parent, field, swapped, "; ".join(texts), "swapped")
            yield from self._walk(statement)
            self.statement = outer

    def _walk(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, OPAQUE) or _never(node):
            return
        if isinstance(node, ast.keyword) and node.arg in ASSERTING:
            return
        if isinstance(node, ast.expr):
            yield from self._of_expression(node)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from self._block(node, field, _without_docstring(value))
            else:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        if field in ("test", "guard", "ifs") and isinstance(child, ast.expr):
                            yield from self._of_condition(child)
                        yield from self._walk(child)

    # -- operators --

    def _of_condition(self, test: ast.expr) -> Iterator[Mutant]:
        match test:
            case ast.UnaryOp(op=ast.Not()) | ast.Constant():
                return  # another operator removes the `not`, or this is `while True`
            case ast.Compare(ops=[op]) if not isinstance(op, ORDERED):
                return  # the operator for comparisons creates the same mutant
        yield self._replace("negate", test, ast.UnaryOp(ast.Not(), test))

    def _of_expression(self, node: ast.expr) -> Iterator[Mutant]:
        match node:
            case ast.Compare(ops=ops):
                for at, op in enumerate(ops):
                    changed = [*ops[:at], COMPARED[type(op)](), *ops[at + 1 :]]
                    yield self._set("compare", node, "ops", changed)
            case ast.BoolOp(op=op, values=values):
                other = ast.Or() if isinstance(op, ast.And) else ast.And()
                yield self._set("and-or", node, "op", other)
                for at in range(len(values)):
                    rest = [*values[:at], *values[at + 1 :]]
                    left = rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
                    yield self._replace("operand", node, left)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replace("not", node, operand)
            case ast.BinOp(op=op) if type(op) in COMPUTED and not _textual(node):
                yield self._set("arithmetic", node, "op", COMPUTED[type(op)]())
            case ast.Constant(value=bool(value)):
                yield self._set("constant", node, "value", not value)
            case ast.Constant(value=int(value)):
                yield self._set("constant", node, "value", value + 1)
                yield self._set("constant", node, "value", value - 1)
            case ast.Constant(value=float(value)):
                yield self._set("constant", node, "value", value * 2 if value else 1.0)
            case ast.Call(func=ast.Name(id=name)) if name in CALLED:
                yield self._set("call", node, "func", ast.Name(CALLED[name], ast.Load()))
        if isinstance(node, ast.Call):
            for at, keyword in enumerate(node.keywords):
                if keyword.arg not in (None, *ASSERTING):
                    rest_of = [*node.keywords[:at], *node.keywords[at + 1 :]]
                    yield self._set("keyword", node, "keywords", rest_of)

    def _of_statement(self, node: ast.stmt) -> Iterator[Mutant]:
        match node:
            case ast.Return(value=ast.expr() as value):
                if self.returns == "bool":
                    if not isinstance(value, ast.Constant | ast.Compare) and not _negated(value):
                        yield self._set("return", node, "value", ast.UnaryOp(ast.Not(), value))
                elif not (isinstance(value, ast.Constant) and value.value is None):
                    yield self._set("return", node, "value", ast.Constant(None))
            case ast.Continue():
                yield self._replace("loop", node, ast.Break())
            case ast.Break():
                yield self._replace("loop", node, ast.Continue())
            case ast.AugAssign(op=op) if type(op) in COMPUTED:
                yield self._set("arithmetic", node, "op", COMPUTED[type(op)]())
        if self._droppable(node):
            yield self._replace("drop", node, ast.Pass())

    def _droppable(self, node: ast.stmt) -> bool:
        """Return whether all names are still bound if the statement is removed."""
        match node:
            case ast.Expr(value=ast.Call()):
                return not _never(node)
            case ast.Return(value=None) | ast.Continue() | ast.Break():
                return True
            case ast.AugAssign() | ast.Delete() | ast.For() | ast.While() | ast.Raise():
                return True
            case ast.Assign(targets=targets):
                return all(self._bound(each) for each in targets)
            case ast.AnnAssign(target=target, value=ast.expr()):
                return self._bound(target)
            case _:
                return False

    def _bound(self, target: ast.expr) -> bool:
        """Return whether a target has a value before the current statement."""
        unit = self.unit.node
        match target:
            case ast.Tuple(elts=elements):
                return all(self._bound(each) for each in elements)
            case ast.Name(id=name):
                return any(line < target.lineno for bound, line in _bindings(unit) if bound == name)
            case ast.Attribute():
                return isinstance(unit, Function) and unit.name != "__init__"
            case _:
                return True

    # -- mutants --

    def _set(self, operator: str, node: ast.AST, field: str, value: Any) -> Mutant:
        before, old = _text(node), getattr(node, field)
        setattr(node, field, value)
        after = _text(node)
        setattr(node, field, old)
        return self._change(operator, node, field, value, before, after)

    def _replace(self, operator: str, node: ast.AST, new: ast.AST) -> Mutant:
        parent, field, at = self.links[node]
        value: Any = new
        if at >= 0:
            whole = getattr(parent, field)
            value = [*whole[:at], new, *whole[at + 1 :]]
        return self._change(operator, parent, field, value, _text(node), _text(new))

    def _change(
        self, operator: str, parent: ast.AST, field: str, value: Any, before: str, after: str
    ) -> Mutant:
        key = operator, before, after
        self.seen[key] = self.seen.get(key, 0) + 1
        return Mutant(
            self.unit, operator, before, after, self.seen[key], self._lines(), parent, field, value
        )

    def _lines(self) -> range:
        """Return the lines of the current statement, or of its head if it has a body."""
        statement = self.statement
        if statement is self.unit.node:
            return range(0)
        last = statement.end_lineno or statement.lineno
        body = getattr(statement, "body", None) or getattr(statement, "cases", None)
        if body:
            first_inside = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
            last = max(statement.lineno, first_inside.lineno - 1)
        return range(statement.lineno, last + 1)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def _order_matters(one: ast.stmt, other: ast.stmt) -> bool:
    """Return whether both are method calls on `self`, and not both about timers."""
    verbs = [_verb(one), _verb(other)]
    return all(verbs) and not all(verb in TIMERS for verb in verbs)


def _verb(node: ast.stmt) -> str:
    match node:
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=verb)))
            | ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=verb)
                )
            )
        ):
            return verb
        case _:
            return ""


def _never(node: ast.AST) -> bool:
    """Return whether a node is a call of `assert_never`."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case _:
            return False


def _bindings(unit: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a unit binds, each with a line."""
    for node in ast.walk(unit):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case _:
                pass


def _negated(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _textual(node: ast.BinOp) -> bool:
    """Return whether an operand is a literal that only `+` and `%` apply to."""
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )
