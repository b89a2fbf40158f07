"""Test the list of compiled modules, and the tool that compiles them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from oncecast import kernel
from oncecast.kernel import compiling
from tools import compile as compiler

FILES = [each for files in compiler.modules().values() for each in files]
# mypyc compiles subclasses of these types wrongly or refuses them.
UNFIT = (msgspec.Struct, BaseException, str, dict)


def classes(module: ModuleType) -> Iterator[type]:
    for each in vars(module).values():
        if isinstance(each, type) and each.__module__ == module.__name__:
            yield each


def test_listed_modules_exist_once() -> None:
    assert len(FILES) == len(set(FILES))
    assert [each for each in FILES if not (compiler.ROOT / each).exists()] == []


@pytest.mark.parametrize("file", FILES)
def test_compiled_module_defines_no_type_that_the_compiler_breaks(file: str) -> None:
    """The compiler ignores arguments such as `tag=` of a struct, without a warning."""
    module = import_module(file.removesuffix(".py").replace("/", "."))
    assert [each for each in classes(module) if issubclass(each, UNFIT)] == []


@pytest.mark.parametrize("file", FILES)
def test_compiled_class_declares_unions_as_class_variables(file: str) -> None:
    """The compiler drops `Message = Ping | Pong` in a class, because it mistakes the line for an
    alias."""
    tree = ast.parse((compiler.ROOT / file).read_text())
    bodies = [each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    dropped = [
        ast.unparse(each)
        for body in bodies
        for each in body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.BinOp)
    ]
    assert dropped == []


def project(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """Return a project with one package of two modules, of which one is compiled."""
    root.mkdir(exist_ok=True)
    monkeypatch.setattr(compiler, "ROOT", root)
    monkeypatch.setattr(compiler, "LIST", root / "list.toml")
    (root / "list.toml").write_text('kernel = ["stack"]\n')
    (root / "pyproject.toml").write_text("")
    package = root / "oncecast" / "kernel"
    package.mkdir(parents=True)
    (package / "stack.py").write_text("A = 1\n")
    (package / "codec.py").write_text("B = 1\n")
    return package


def test_source_that_is_newer_than_its_compiled_file_is_outdated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = project(monkeypatch, tmp_path)
    compiled = package / "stack.cpython-311-x86_64-linux-gnu.so"
    compiled.touch()
    os.utime(package / "stack.py", (100, 100))
    os.utime(compiled, (200, 200))
    assert list(compiler.outdated(tmp_path)) == []
    os.utime(package / "stack.py", (300, 300))
    assert list(compiler.outdated(tmp_path)) == [package / "stack.py"]


def test_compiled_files_are_removed_and_sources_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = project(monkeypatch, tmp_path)
    (package / "stack.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "oncecast" / "kernel__mypyc.cpython-311-x86_64-linux-gnu.so").touch()
    compiler.remove(tmp_path)
    assert sorted(package.iterdir()) == [package / "codec.py", package / "stack.py"]
    assert compiler.compiled_files(tmp_path) == []


def test_copy_follows_the_sources_and_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A compiled file must not hide the source of a module that is no longer compiled."""
    package = project(monkeypatch, tmp_path / "project")
    copy = tmp_path / "copy"
    compiler.copy_sources(copy)
    kernel = copy / "oncecast" / "kernel"
    suffix = ".cpython-311-x86_64-linux-gnu.so"
    (kernel / f"stack{suffix}").touch()
    (kernel / f"codec{suffix}").touch()
    (package / "codec.py").unlink()
    (package / "stack.py").write_text("A = 2\n")
    compiler.copy_sources(copy)
    assert (kernel / "stack.py").read_text() == "A = 2\n"
    assert {each.name for each in kernel.iterdir()} == {"stack.py", f"stack{suffix}"}


def test_files_compiled_at_another_level_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel must not contain the hardly optimized files of `make fast-test`."""
    package = project(monkeypatch, tmp_path)
    compiled = package / "stack.cpython-311-x86_64-linux-gnu.so"
    compiler.drop_other_levels(tmp_path, 1)
    compiled.touch()
    compiler.drop_other_levels(tmp_path, 1)
    assert compiled.exists()
    compiler.drop_other_levels(tmp_path, 3)
    assert not compiled.exists()


def test_build_is_named_after_the_file_that_python_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel, "__path__", [str(tmp_path)])
    (tmp_path / "stack.py").touch()
    assert compiling.build() == "pure Python"
    (tmp_path / f"stack{EXTENSION_SUFFIXES[0]}").touch()
    invalidate_caches()
    assert compiling.build() == "compiled"
