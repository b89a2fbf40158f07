"""The OpenAPI document, generated from the table of operations."""

from __future__ import annotations

from typing import Any

import msgspec

import oncecast
from oncecast.errors import (
    BadRequest,
    BodyTooLarge,
    Closed,
    CrossSite,
    Denied,
    HeadTooLarge,
    InvalidArgument,
    NotAuthenticated,
    NotConnected,
    OncecastError,
    Overloaded,
    TimedOut,
    TooSlow,
    WrongContent,
    WrongHost,
)
from oncecast.web.exchange import BYTES, JSON
from oncecast.web.operations import PATH, Operation, Parameter
from oncecast.web.problems import STATUSES
from oncecast.web.shapes import Problem

TEMPLATE = "#/components/schemas/{name}"
# Errors that every operation can have.
ALWAYS: tuple[type[OncecastError], ...] = (
    BadRequest,
    InvalidArgument,
    NotAuthenticated,
    Denied,
    WrongHost,
    HeadTooLarge,
    Overloaded,
    NotConnected,
    Closed,
    TimedOut,
    OncecastError,
)
WRITING: tuple[type[OncecastError], ...] = (CrossSite, BodyTooLarge, TooSlow, WrongContent)


def document(operations: tuple[Operation, ...], base: str) -> dict[str, Any]:
    types = [Problem]
    for each in operations:
        types += [kind for kind in (each.body, each.answer) if kind is not None]
    _, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "oncecast",
            "version": oncecast.__version__,
            "description": "Put, get and look at messages over HTTP. See docs/http.md.",
        },
        "servers": [{"url": base}],
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def described(operation: Operation) -> dict[str, Any]:
    path = operation.path.replace("/", " ").replace("{", "").replace("}", "").split()
    found: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.about,
        "operationId": "-".join((operation.method.lower(), *path)),
        "parameters": [parameter(each) for each in operation.parameters],
        "responses": responses(operation),
    }
    if operation.body is not None:
        content = {JSON: {"schema": schema(operation.body)}}
        if operation.raw:
            content[BYTES] = {"schema": {"type": "string", "format": "binary"}}
        found["requestBody"] = {"required": not operation.bare, "content": content}
    return found


def schema(kind: Any) -> dict[str, Any]:
    (found,), _ = msgspec.json.schema_components([kind], ref_template=TEMPLATE)
    return found


def parameter(each: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": each.name,
        "in": each.where,
        "description": each.about,
        "required": each.required or each.where == PATH,
        "schema": schema(each.kind),
    }
    if each.default not in (None, ""):
        found["schema"] = {**found["schema"], "default": each.default}
    return found


def responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in (operation.status, *operation.also):
        found[str(status)] = {"description": "The request succeeded."}
        if operation.answer is not None:
            content = {operation.content: {"schema": schema(operation.answer)}}
            found[str(status)]["content"] = content
    always = ALWAYS + (WRITING if operation.writes else ())
    for kind in sorted({*always, *operation.errors}, key=lambda each: (status_at(each), each.code)):
        known = found.setdefault(
            str(status_at(kind)),
            {"description": "", "content": {JSON: {"schema": schema(Problem)}}},
        )
        known["description"] = ", ".join(filter(None, (known["description"], kind.code)))
    return found


def status_at(kind: type[OncecastError]) -> int:
    return next(STATUSES[each] for each in kind.__mro__ if each in STATUSES)
