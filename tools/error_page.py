"""Generate the tables of docs/errors.md from the declarations in oncecast/errors.py."""

from __future__ import annotations

from collections.abc import Iterator

from oncecast import errors
from oncecast.errors import OncecastError

START, END = "<!-- errors: generated -->\n", "<!-- errors: end -->\n"

FAMILIES = {
    OncecastError: "Clients and nodes",
    errors.CoordinationError: "Coordination",
    errors.StreamError: "Streams",
    errors.StorageError: "Storage",
    errors.NetworkError: "Network",
    errors.ProtocolError: "Wire protocol",
    errors.SettingsError: "Settings",
    errors.SessionError: "Internal",
}


def kinds() -> list[type[OncecastError]]:
    """Return all errors, in the order of their declaration."""
    found = vars(errors).values()
    return [each for each in found if isinstance(each, type) and issubclass(each, OncecastError)]


def family_of(kind: type[OncecastError]) -> type[OncecastError]:
    return next(each for each in kind.__mro__ if each in FAMILIES)


def with_errors(page: str) -> str:
    """Return the page with new tables."""
    head, _, rest = page.partition(START)
    return head + START + "\n" + "\n".join(tables()) + "\n" + END + rest.partition(END)[2]


def tables() -> Iterator[str]:
    for family, title in FAMILIES.items():
        yield f"## {title}\n"
        yield from table([each for each in kinds() if family_of(each) is family])
        yield ""


def table(members: list[type[OncecastError]]) -> Iterator[str]:
    yield "| error | code | exit status | when | message | remedy |"
    yield "|---|---|---|---|---|---|"
    for kind in members:
        when = " ".join((kind.__doc__ or "").split())
        remedy = "; on the command line: ".join(filter(None, (kind.remedy, kind.cli_remedy)))
        yield (
            f"| `{kind.__name__}` | `{kind.code}` | {kind.exit_status.value} | {when} | "
            f"`{kind.message}` | {remedy} |"
        )
