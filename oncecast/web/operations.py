"""The declaration of a route: one value, from which requests are checked and documented."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from oncecast.errors import BadRequest, OncecastError

if TYPE_CHECKING:
    from oncecast.web.exchange import Call

    Handler = Callable[[Call], Awaitable[Any]]

PARAMETERS_MAX = 50  # maximum number of query parameters
PATH, QUERY, HEADER = "path", "query", "header"


class Parameter(NamedTuple):
    name: str
    where: str
    kind: Any  # a type that msgspec can convert text to
    about: str
    default: Any = None
    required: bool = False

    def value_of(self, text: str) -> Any:
        try:
            return msgspec.convert(text, self.kind, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{self.where} parameter {self.name}: {error}") from None


class Operation(NamedTuple):
    """A method of a path. `answer` is the type of the body, or None without a body."""

    method: str
    path: str
    tag: str
    about: str
    handler: Handler
    answer: Any
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses with the same body
    parameters: tuple[Parameter, ...] = ()
    body: Any = None  # the type of a JSON body
    raw: bool = False  # whether the body may also be bytes
    bare: bool = False  # whether the JSON body may be left out
    content: str = "application/json"  # the content type of the answer
    errors: tuple[type[OncecastError], ...] = ()

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))


def read_parameters(
    operation: Operation, path: dict[str, str], query: bytes, headers: dict[str, str]
) -> dict[str, Any]:
    """Return the values of all parameters, or raise BadRequest."""
    asked = query_of(query)
    found: dict[str, Any] = {}
    for each in operation.parameters:
        source = {PATH: path, QUERY: asked, HEADER: headers}[each.where]
        key = each.name.lower() if each.where == HEADER else each.name
        text = source.get(key)
        if text is None:
            if each.required:
                raise BadRequest(f"the {each.where} parameter {each.name} is missing")
            found[each.name] = each.default
        else:
            found[each.name] = each.value_of(text)
    known = {each.name for each in operation.parameters if each.where == QUERY}
    unknown = sorted(asked.keys() - known)
    if unknown:
        raise BadRequest(f"unknown query parameter {unknown[0]!r:.80}")
    return found


def query_of(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
        )
    except ValueError:
        raise BadRequest("the query is not valid UTF-8, or has too many parameters") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadRequest("a query parameter is given twice")
    return found
