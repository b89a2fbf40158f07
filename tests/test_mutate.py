"""Test the tool that generates mutants: its changes, ids and reports."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.mutate import equivalents, operators, sources
from tools.mutate.__main__ import ONCECAST, choose
from tools.mutate.operators import Mutant
from tools.mutate.planting import Unplantable, functions, plant
from tools.mutate.selection import Measured, Selection, outdated

LAMP = '''\
"""A lamp."""

LIMIT = 3


class Lamp:
    def __init__(self) -> None:
        self.lit = 0

    def switch(self, times: int, *, first: int = 1) -> int:
        """Switch the lamp, and return how often it was switched."""
        for _ in range(first, times + 1):
            if self.lit >= LIMIT:
                break
            self.lit += 1
        return self.lit
'''

STRONG = """\
from lamp.core.lamp import Lamp


def test_lamp_is_switched_up_to_its_limit():
    lamp = Lamp()
    assert lamp.switch(1) == 1
    assert lamp.switch(1) == 2
    assert lamp.switch(5) == 3
    assert lamp.switch(1) == 3
"""

WEAK = """\
from lamp.core.lamp import Lamp


def test_lamp_can_be_switched():
    assert Lamp().switch(1)
"""


def read(folder: Path, text: str, name: str = "lamp.py") -> sources.Source:
    (folder / name).write_text(text)
    return sources.read(folder / name, folder)


def made(folder: Path, body: str, head: str = "def work(self, a, b):") -> dict[str, set[str]]:
    """Return the changes that each operator makes to a function with this body."""
    text = head + "\n" + "".join(f"    {line}\n" for line in body.splitlines())
    changes: dict[str, set[str]] = {}
    for mutant in operators.mutants(read(folder, text)):
        changes.setdefault(mutant.operator, set()).add(f"{mutant.before} -> {mutant.after}")
    return changes


@pytest.mark.parametrize(
    ("body", "operator", "changes"),
    [
        ("x = a < b", "compare", {"a < b -> a <= b"}),
        ("x = a is b", "compare", {"a is b -> a is not b"}),
        ("if a < b:\n    b()", "negate", {"a < b -> not a < b"}),
        ("x = [y for y in a if y]", "negate", {"y -> not y"}),
        ("x = a and b", "and-or", {"a and b -> a or b"}),
        ("x = a and b", "operand", {"a and b -> a", "a and b -> b"}),
        ("x = not a", "not", {"not a -> a"}),
        ("x = a + 1", "arithmetic", {"a + 1 -> a - 1"}),
        ("a += b", "arithmetic", {"a += b -> a -= b"}),
        ("x = 7", "constant", {"7 -> 8", "7 -> 6"}),
        ("x = 1.5", "constant", {"1.5 -> 3.0"}),
        ("x = True", "constant", {"True -> False"}),
        ("x = min(a, b)", "call", {"min(a, b) -> max(a, b)"}),
        ("a(b, after=b)", "keyword", {"a(b, after=b) -> a(b)"}),
        ("self.send(a)", "drop", {"self.send(a) -> pass"}),
        ("del a[b]", "drop", {"del a[b] -> pass"}),
        ("raise a", "drop", {"raise a -> pass"}),
        ("return a", "return", {"return a -> return None"}),
        (
            "for x in a:\n    continue",
            "loop",
            {"continue -> break"},
        ),
        (
            "self.append(a)\nself.send(b)\na()",
            "swap",
            {"self.append(a); self.send(b) -> swapped"},
        ),
    ],
)
def test_operator_makes_only_the_expected_changes(
    tmp_path: Path, body: str, operator: str, changes: set[str]
) -> None:
    assert made(tmp_path, body)[operator] == changes


def test_function_body_without_a_result_is_replaced_by_pass(tmp_path: Path) -> None:
    changes = made(tmp_path, "self.x = a\nself.y = b", "def work(self, a, b) -> None:")
    assert changes["empty"] == {"the whole body -> pass"}


def test_returned_boolean_is_negated(tmp_path: Path) -> None:
    changes = made(tmp_path, "return a(b)", "def work(self, a, b) -> bool:")
    assert changes == {"return": {"return a(b) -> return not a(b)"}}


@pytest.mark.parametrize(
    "body",
    [
        "assert a < 1",
        "'''a docstring'''",
        "x = f'{a + 1}'",
        "x: 'list[1]' = a",
        "assert_never(a)",
        "x = zip(a, b, strict=True)",
        "x = a",
    ],
)
def test_code_without_effect_on_behaviour_is_not_mutated(tmp_path: Path, body: str) -> None:
    assert made(tmp_path, body) == {}


def test_raise_arguments_are_not_mutated(tmp_path: Path) -> None:
    assert list(made(tmp_path, "raise ValueError(1, a and b)")) == ["drop"]


def test_mutant_has_the_same_id_after_unrelated_edits(tmp_path: Path) -> None:
    before = operators.mutants(read(tmp_path, LAMP))
    edited = LAMP.replace("class Lamp:", "def other() -> int:\n    return 5\n\n\nclass Lamp:")
    edited = edited.replace("        for _", "        # A comment.\n        for _")
    after = operators.mutants(read(tmp_path, edited))
    others = [mutant.id for mutant in after if mutant.unit.name != "other"]
    assert others == [mutant.id for mutant in before]
    assert len(set(others)) == len(others)


def test_equal_changes_to_the_same_function_have_different_ids(tmp_path: Path) -> None:
    source = read(tmp_path, "def work(a):\n    a(1)\n    a(1)\n")
    drops = [each for each in operators.mutants(source) if each.operator == "drop"]
    assert [each.occurrence for each in drops] == [1, 2]
    assert drops[0].id != drops[1].id


def test_removing_a_mutant_barely_changes_the_choice_for_a_seed(tmp_path: Path) -> None:
    arguments = SimpleNamespace(only=[], again=None, files=["lamp.py"], n=8, seed="3")
    every = operators.mutants(read(tmp_path, LAMP))
    chosen = [mutant.id for mutant in choose(every, arguments)]  # type: ignore[arg-type]
    assert len(chosen) == 8
    fewer = [mutant for mutant in every if mutant.id != chosen[0]]
    rest = [mutant.id for mutant in choose(fewer, arguments)]  # type: ignore[arg-type]
    assert rest[:7] == chosen[1:]


def imported(folder: Path, text: str, name: str) -> tuple[sources.Source, dict[str, object]]:
    """Return a source whose functions are imported, and its namespace."""
    source = read(folder, text, f"{name}.py")
    names: dict[str, object] = {"__name__": name}
    exec(compile(text, str(source.path), "exec"), names)
    return source, names


def the(source: sources.Source, operator: str, after: str) -> Mutant:
    (found,) = [
        each
        for each in operators.mutants(source)
        if (each.operator, each.after) == (operator, after)
    ]
    return found


def test_applied_mutant_is_visible_through_existing_references(tmp_path: Path) -> None:
    source, names = imported(tmp_path, "def more(a):\n    return a + 1\n", "more")
    reference = names["more"]
    plant(the(source, "arithmetic", "a - 1"), source, functions())
    assert reference(5) == 4  # type: ignore[operator]


def test_mutant_may_remove_the_last_use_of_super(tmp_path: Path) -> None:
    text = (
        "class A:\n    def f(self, seen):\n        seen.append('A')\n"
        "class B(A):\n    def f(self, seen):\n        super().f(seen)\n        seen.append('B')\n"
    )
    source, names = imported(tmp_path, text, "supers")
    drop = next(each for each in operators.mutants(source) if "super" in each.before)
    plant(drop, source, functions())
    seen: list[str] = []
    names["B"]().f(seen)  # type: ignore[operator]
    assert seen == ["B"]


def test_mutated_default_value_takes_effect(tmp_path: Path) -> None:
    source, names = imported(tmp_path, "def f(a=1, *, b=5):\n    return a, b\n", "defaults")
    plant(the(source, "constant", "6"), source, functions())
    assert names["f"]() == (1, 6)  # type: ignore[operator]


def test_mutant_cannot_be_applied_to_a_function_that_is_not_imported(tmp_path: Path) -> None:
    source = read(tmp_path, "def f(a):\n    return a\n")
    with pytest.raises(Unplantable, match="no function f was imported"):
        plant(the(source, "return", "return None"), source, functions())


def test_diff_shows_the_change_and_does_not_alter_the_tree(tmp_path: Path) -> None:
    source = read(tmp_path, LAMP)
    before = ast.unparse(source.tree)
    diff = the(source, "compare", "self.lit > LIMIT").diff()
    assert "-        if self.lit >= LIMIT:\n+        if self.lit > LIMIT:" in diff
    assert ast.unparse(source.tree) == before


def test_only_tests_that_reach_the_line_are_chosen_fastest_first(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    source = read(tmp_path, LAMP, "core/lamp.py")
    switch = next(unit for unit in source.units if unit.name == "Lamp.switch")
    key = f"{switch.key}@{switch.digest}"
    tests = {
        "slow": Measured("", 2.0, True, {key: 0b111111111}),
        "quick": Measured("", 0.1, True, {key: 0b111111111}),
        "tests/core/quick": Measured("", 0.2, True, {key: 0b111111111}),
        "elsewhere": Measured("", 0.5, True, {key: 0b000000001}),
        "failing": Measured("", 0.5, False, {key: 0b111111111}),
        "of an older text": Measured("", 3.0, True, {f"{switch.key}@00000000": 1}),
    }
    mutant = next(each for each in operators.mutants(source) if each.before == "self.lit >= LIMIT")
    assert Selection([source], tests).reaching(mutant) == [
        "tests/core/quick",
        "quick",
        "slow",
        "of an older text",
    ]


def test_only_tests_in_changed_files_are_measured_again() -> None:
    known = {"a": Measured("1", 0.1, True), "b": Measured("1", 0.1, True)}
    assert outdated(known, ["a", "b"], "1") == []
    assert outdated(known, ["a", "b"], "2") == ["a", "b"]
    assert outdated(known, ["a", "b", "c"], "1") == ["a", "b", "c"]


def test_equivalent_mutant_needs_a_reason_and_is_listed_only_once(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    entry = '[[mutant]]\nid = "a"\nchange = "x -> y"\nreason = "both are zero"\n'
    path.write_text(entry)
    assert equivalents.read(path) == {"a": "both are zero"}
    path.write_text(entry + entry)
    with pytest.raises(equivalents.Malformed, match="a is listed twice"):
        equivalents.read(path)
    path.write_text('[[mutant]]\nid = "a"\nchange = "x -> y"\n')
    with pytest.raises(equivalents.Malformed, match="lacks reason"):
        equivalents.read(path)


@pytest.mark.long
def test_every_listed_equivalent_mutant_still_exists() -> None:
    reasons = equivalents.read(ONCECAST.equivalents)
    files = {each.partition(":")[0] for each in reasons}
    every = [
        mutant
        for source in ONCECAST.sources()
        if source.file in files
        for mutant in operators.mutants(source)
    ]
    assert equivalents.stale(reasons, every) == []


def lamp_project(folder: Path, test: str, equivalent: str = "") -> None:
    for each in ("lamp/core", "tests/core", "tools"):
        (folder / each).mkdir(parents=True)
    (folder / "lamp/__init__.py").touch()
    (folder / "lamp/core/__init__.py").touch()
    (folder / "lamp/core/lamp.py").write_text(LAMP)
    (folder / "tests/core/test_lamp.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    mutants: x\n")
    (folder / "tools/equivalent_mutants.toml").write_text(equivalent)


def run_lamp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from pathlib import Path;"
        "from tools.mutate.__main__ import Project, main;"
        "root = Path(sys.argv[1]);"
        "sys.exit(main(sys.argv[2:], Project(root, root / 'lamp', ['core'], [])))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(folder), "core", *words],
        capture_output=True,
        text=True,
        cwd=ONCECAST.root,
    )


@pytest.mark.long
def test_strong_tests_kill_every_unlisted_mutant(tmp_path: Path) -> None:
    lamp_project(tmp_path, STRONG)
    source = sources.read(tmp_path / "lamp/core/lamp.py", tmp_path / "lamp")
    lasting = the(source, "loop", "continue").id
    (tmp_path / "tools/equivalent_mutants.toml").write_text(
        f'[[mutant]]\nid = "{lasting}"\nchange = "break -> continue"\nreason = "no effect"\n'
        '[[mutant]]\nid = "core/lamp.py:gone:00000000"\nchange = "x -> y"\nreason = "gone"\n'
    )
    done = run_lamp(tmp_path, "--at-least", "100", "--json", str(tmp_path / "out.json"))
    verdicts = map(json.loads, (tmp_path / "out.json").read_text().splitlines())
    found = {each["id"]: each["status"] for each in verdicts}
    assert found.pop(lasting) == "equivalent"
    assert set(found.values()) == {"killed"}
    assert "no mutant has the id core/lamp.py:gone:00000000; remove the entry" in done.stderr
    assert done.returncode == 1


@pytest.mark.long
def test_survivors_of_weak_tests_are_shown_and_fail_the_run(tmp_path: Path) -> None:
    lamp_project(tmp_path, WEAK)
    done = run_lamp(tmp_path, "--at-least", "95")
    assert "-        if self.lit >= LIMIT:\n+        if self.lit > LIMIT:" in done.stdout
    assert "killed or equivalent (at least 95 %)" in done.stdout
    assert done.returncode == 1


@pytest.mark.long
def test_unknown_mutant_cannot_be_shown(tmp_path: Path) -> None:
    lamp_project(tmp_path, STRONG)
    done = run_lamp(tmp_path, "--show", "nope")
    assert done.stderr == "no mutant has the id nope; --list prints all ids\n"
    assert (done.stdout, done.returncode) == ("", 2)
