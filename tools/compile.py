"""Compile the modules in compiled_modules.toml with mypyc.

    python -m tools.compile                 compile this tree in place
    python -m tools.compile --copy          compile a copy in build/fast and leave this tree alone
    python -m tools.compile --remove        remove the compiled files of this tree

Python prefers a compiled file to the source beside it. So a compiled tree must be compiled again
after each change; `outdated` finds the modules whose source is newer. A second run compiles only
the libraries whose code has changed. It needs a C compiler and the header files of Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "compiled_modules.toml"
COPY = ROOT / "build" / "fast"
EXTENSION = "*.cpython-*.so"


def modules() -> dict[str, list[str]]:
    """Return the source files of each library, relative to the project."""
    packages: dict[str, list[str]] = tomllib.loads(LIST.read_text())
    return {
        package: [f"oncecast/{package.replace('.', '/')}/{name}.py" for name in names]
        for package, names in packages.items()
    }


def compiled_files(tree: Path) -> list[Path]:
    return sorted((tree / "oncecast").rglob(EXTENSION))


def outdated(tree: Path) -> Iterator[Path]:
    """Yield the sources that are newer than the compiled file beside them."""
    for file in compiled_files(tree):
        source = file.with_name(file.name.split(".")[0] + ".py")
        if source.exists() and source.stat().st_mtime > file.stat().st_mtime:
            yield source


def remove(tree: Path) -> None:
    for file in compiled_files(tree):
        file.unlink()


def drop_other_levels(tree: Path, level: int) -> None:
    """Remove files compiled at another optimization level, because a build would keep them."""
    used = tree / "build" / "level"
    if not used.exists() or used.read_text() != str(level):
        remove(tree)
    used.parent.mkdir(exist_ok=True)
    used.write_text(str(level))


def copy_sources(tree: Path) -> None:
    """Copy the package to `tree`, and keep the compiled files there."""
    package = ROOT / "oncecast"
    sources = {each.relative_to(ROOT) for each in package.rglob("*.py")}
    for old in (tree / "oncecast").rglob("*.py"):
        if old.relative_to(tree) not in sources:
            old.unlink()
    for source in sorted(sources | {Path("pyproject.toml")}):
        target = tree / source
        text = (ROOT / source).read_bytes()
        if not target.exists() or target.read_bytes() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, target)
    listed = {tree / each for files in modules().values() for each in files}
    for file in compiled_files(tree):
        if file.parent != tree / "oncecast" and _source(file) not in listed:
            file.unlink()


def _source(file: Path) -> Path:
    return file.with_name(file.name.split(".")[0] + ".py")


def build(tree: Path, *, level: int = 3, jobs: int = 2) -> None:
    """Compile the modules of `tree` in place. Exit with a message if that is impossible."""
    # Importing these takes a second, and only development environments have them.
    from mypyc.build import mypycify
    from setuptools import Distribution  # type: ignore[import-untyped,unused-ignore]

    groups = modules()
    files = [each for group in groups.values() for each in group]
    drop_other_levels(tree, level)
    os.chdir(tree)  # mypyc names modules relative to the current directory
    extensions = mypycify(
        ["--config-file", "pyproject.toml", "--cache-dir", "build/mypy", *files],
        only_compile_paths=files,
        opt_level=str(level),
        debug_level="0",
        separate=[(group, f"oncecast.{name.replace('.', '_')}") for name, group in groups.items()],
        target_dir="build/c",
    )
    command = Distribution({"name": "oncecast", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    command.inplace, command.parallel = True, jobs
    command.build_temp, command.build_lib = "build/objects", "build/lib"
    command.ensure_finalized()
    command.run()
    for file in compiled_files(tree):
        os.utime(file)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.compile", description=__doc__)
    parser.add_argument(
        "--copy", action="store_true", help="compile a copy of the tree in build/fast"
    )
    parser.add_argument("--remove", action="store_true", help="remove the compiled files")
    parser.add_argument("--level", type=int, default=3, help="optimization level (default: 3)")
    parser.add_argument(
        "--jobs", type=int, default=2, help="number of parallel compilers (default: 2)"
    )
    given = parser.parse_args(words)
    if given.remove:
        remove(ROOT)
        return 0
    tree = COPY if given.copy else ROOT
    if given.copy:
        copy_sources(tree)
    build(tree, level=given.level, jobs=given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
