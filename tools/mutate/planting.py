"""Insert a mutant into the loaded modules, without importing anything again.

It replaces the code of existing function objects, so every reference to them sees the mutant.
"""

from __future__ import annotations

import ast
import gc
import sys
from types import CodeType, FunctionType, ModuleType

from tools.mutate.operators import Mutant
from tools.mutate.sources import Function, Source

ANNOTATIONS = annotations.compiler_flag
CONSTRUCTS = tuple[str, str, int]  # file, qualified name, first line


class Unplantable(Exception):
    """The function of a mutant does not exist in this process."""


def functions() -> dict[CONSTRUCTS, list[FunctionType]]:
    """Return every function object of this process, by the location of its code."""
    found: dict[CONSTRUCTS, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found.setdefault(_origin(each.__code__), []).append(each)
    return found


def plant(mutant: Mutant, source: Source, existing: dict[CONSTRUCTS, list[FunctionType]]) -> None:
    """Apply the mutant to the running program."""
    mutant.plant()
    ast.fix_missing_locations(source.tree)
    if isinstance(mutant.unit.node, Function):
        _plant_function(mutant, source, existing)
    else:
        _plant_constant(mutant, source)


def _plant_function(
    mutant: Mutant, source: Source, existing: dict[CONSTRUCTS, list[FunctionType]]
) -> None:
    origin = str(source.path), mutant.unit.qualname, mutant.unit.first
    if origin not in existing:
        raise Unplantable(f"no function {mutant.unit.qualname} was imported from {source.path}")
    module = compile(source.tree, str(source.path), "exec", ANNOTATIONS)
    code = next(each for each in _codes(module) if _origin(each) == origin)
    for function in existing[origin]:
        if code.co_freevars != function.__code__.co_freevars:
            # The mutant no longer uses a closed-over name, but the function object keeps its cells.
            code = code.replace(co_freevars=function.__code__.co_freevars)
        function.__code__ = code
        _plant_defaults(mutant, function)


def _plant_defaults(mutant: Mutant, function: FunctionType) -> None:
    if mutant.lines or mutant.operator == "empty":
        return  # the mutant changes only the body
    node = mutant.unit.node
    assert isinstance(node, Function)
    names = function.__globals__
    arguments = node.args
    if arguments.defaults:
        function.__defaults__ = tuple(_evaluate(each, names) for each in arguments.defaults)
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    function.__kwdefaults__ = {
        argument.arg: _evaluate(default, names) for argument, default in pairs if default
    }


def _plant_constant(mutant: Mutant, source: Source) -> None:
    """Set the constant in every module that has imported it under its own name."""
    node = mutant.unit.node
    assert not isinstance(node, Function)
    assert node.value is not None
    home = _module(source)
    name = mutant.unit.qualname
    old = vars(home)[name]
    new = _evaluate(node.value, vars(home))
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _module(source: Source) -> ModuleType:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(source.path):
            return module
    raise Unplantable(f"{source.path} was not imported")


def _evaluate(node: ast.expr, names: dict[str, object]) -> object:
    code = compile(ast.Expression(node), "default", "eval", ANNOTATIONS)
    return eval(code, names)


def _origin(code: CodeType) -> CONSTRUCTS:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inner for found in _codes(each))]
