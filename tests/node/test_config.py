"""Settings: one table, four places, no name that is not in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecast.node.config import TABLE, BadSetting, Settings, load
from oncecast.node.replica import idle_us

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data = "file"\ncluster = "file"\nhttp = "127.0.0.1:1"\ndrain_timeout = 3\n')
    environment = {
        "ONCECAST_SERVE_DATA": "environment",
        "ONCECAST_SERVE_CLUSTER": "environment",
        "ONCECAST_SERVE_INSECURE": "true",
        "ONCECAST_OTHER": "not ours",
    }
    assert load({"data": "flag"}, environment, str(file)) == Settings(
        data="flag",
        cluster="environment",
        http="127.0.0.1:1",
        insecure=True,
        drain_timeout=3.0,
    )


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("snapshot_bytes = 5000\n")
    assert load({}, {"ONCECAST_SERVE_CONFIG": str(file)}).snapshot_bytes == 5000


@pytest.mark.parametrize(
    ("environment", "file", "fact"),
    [
        ({"ONCECAST_SERVE_LISTN": "x"}, "", "ONCECAST_SERVE_LISTN: no such setting; did you mean"),
        ({"ONCECAST_SERVE_XYZZY": "x"}, "", "there are data, listen"),
        ({}, "lisen = 'x'", "did you mean listen?"),
        ({}, "listen = 7", "7 is not a string"),
        ({}, "insecure = 1", "1 is not true or false"),
        ({}, "snapshot_bytes = true", "True is not an integer"),
        ({}, "snapshot_bytes = 0", "is not above 0"),
        ({}, "listen", "give a readable TOML file"),
        ({"ONCECAST_SERVE_INSECURE": "maybe"}, "", "'maybe' is not true or false"),
        ({"ONCECAST_SERVE_LOG_LEVEL": "loud"}, "", "none of debug, info"),
        ({"ONCECAST_SERVE_TLS_CA": "ca.pem"}, "", "give all three, or none"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, environment: dict[str, str], file: str, fact: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(file)
    with pytest.raises(BadSetting, match=re.escape(fact)):
        load({}, environment, str(path))


def test_the_page_has_every_setting_with_its_default_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*)`)? ?\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [
        (name, str(known.default), known.metadata["about"]) for name, known in TABLE.items()
    ]
    assert rows == expected


def test_producers_can_be_remembered_for_ever() -> None:
    """SVC-9"""
    assert idle_us(load({"producer_idle": "2.5"}, {}).producer_idle) == 2_500_000
    assert idle_us(load({"producer_idle": "inf"}, {}).producer_idle) == 0
    with pytest.raises(BadSetting, match="not above 0"):
        load({"producer_idle": "0"}, {})
