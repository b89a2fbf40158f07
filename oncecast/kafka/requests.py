"""Parse the requests of Kafka clients, and write the responses."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.errors import Malformed
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.layout import Body, codec, skip_tagged

LENGTH_BYTES = 4
OLDEST = 0  # the version that answers an ApiVersions request in an unknown version


class Incoming(NamedTuple):
    """A request. `code` is an error if only ApiVersions may answer it."""

    header: m.RequestHeader
    api: m.Api
    version: int  # of the response
    request: Body
    code: Code = Code.NONE

    def answer(self, response: Body) -> bytes:
        """Return the response with its length and its header."""
        flexible = self.version >= self.api.flexible
        out = bytearray(LENGTH_BYTES)
        out += self.header.correlation_id.to_bytes(4, "big", signed=True)
        if flexible:
            out.append(0)  # no tagged fields
        codec(self.api.response, self.version, flexible).write(out, response)
        out[:LENGTH_BYTES] = (len(out) - LENGTH_BYTES).to_bytes(4, "big")
        return bytes(out)


def parse(data: bytes) -> Incoming:
    """Return the request, or raise Malformed.

    A client may ask for ApiVersions in a version that is too new. The error in the response makes
    it ask again.
    """
    header, at = codec(m.RequestHeader, 0, False).read(data, 0)
    api, version = m.BY_KEY.get(header.api_key), header.api_version
    if api is None or not api.offers(version):
        if api is not None and api.request is m.ApiVersionsRequest:
            return Incoming(header, api, OLDEST, m.ApiVersionsRequest(), Code.UNSUPPORTED_VERSION)
        raise Malformed(f"request kind {header.api_key} is not supported in version {version}")
    flexible = version >= api.flexible
    if flexible:
        at = skip_tagged(data, at)
    request, end = codec(api.request, version, flexible).read(data, at)
    if end != len(data):
        raise Malformed(f"the request has {len(data) - end} bytes after its last field")
    return Incoming(header, api, version, request)


def offered_versions(code: Code) -> m.ApiVersionsResponse:
    """Return the response that lists all requests and their versions."""
    offered = tuple(
        m.ApiVersion(api_key=api.key, min_version=api.first, max_version=api.last) for api in m.APIS
    )
    return m.ApiVersionsResponse(error_code=code, api_keys=offered)
