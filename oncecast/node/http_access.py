"""Control access to the HTTP pages. The rules for messaging clients do not apply to them.

On loopback, the pages are plain HTTP. On any other address, they need a token (`http_token_file`)
or TLS with the node's certificate. With TLS but no token, HTTP clients need a client certificate.
The setting `insecure` has no effect on these pages.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from pathlib import Path

from oncecast.errors import BadSetting, NotAllowed, TlsUnusable
from oncecast.network.addresses import is_loopback, split_process
from oncecast.network.incidents import line
from oncecast.node.config import Settings

logger = logging.getLogger("oncecast.node")

TOKEN_CHARACTERS_MIN = 16
OTHERS = 0o077  # permission bits for the group and other users


class HttpAccess:
    def __init__(self, settings: Settings) -> None:
        """Check the settings and read the files.

        Raise NotAllowed, BadSetting or TlsUnusable if the pages cannot be protected.
        """
        self._settings = settings
        self.token, self.tls = "", None
        if settings.http:
            self.token = read_token(settings.http_token_file)
            self.tls = self._context()
            self._check()

    @property
    def _exposed(self) -> bool:
        return not is_loopback(split_process(self._settings.http)[0])

    def _check(self) -> None:
        if self._exposed and not self.token and self.tls is None:
            raise NotAllowed(
                f"http: {self._settings.http} is reachable from other machines without a token "
                "or TLS",
                "set http_token_file, give this node a certificate (tls_certificate, tls_key, "
                "tls_ca), or listen on 127.0.0.1",
            )

    def _context(self) -> ssl.SSLContext | None:
        settings = self._settings
        if not self._exposed or not settings.tls_certificate:
            return None
        if not self.token and not settings.tls_ca:
            return None  # TLS without a CA does not authenticate the client
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # scrapers and probes may be old
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
            if not self.token:
                context.load_verify_locations(settings.tls_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            raise TlsUnusable(
                f"cannot load {settings.tls_certificate}, {settings.tls_key} or "
                f"{settings.tls_ca}: {error}",
                "use readable PEM files that belong together",
            ) from error
        return context

    def reload(self) -> None:
        """Reload the token and certificate. If that fails, log the error and keep the old ones."""
        try:
            self.token = read_token(self._settings.http_token_file)
        except BadSetting as error:
            logger.error(line("http_token_kept", {"reason": error}))
        try:
            # Load a new context first: a wrong key would make this one unusable.
            if self.tls is not None and self._context() is not None:
                self.tls.load_cert_chain(self._settings.tls_certificate, self._settings.tls_key)
        except (OSError, TlsUnusable) as error:
            logger.error(line("http_certificate_kept", {"reason": error}))

    def admits(self, request: bytes) -> bool:
        """Return whether a request has the token, or no token is required."""
        return not self.token or hmac.compare_digest(bearer(request), self.token.encode())


def read_token(file: str) -> str:
    """Return the token in a file, or "" without one. Raise BadSetting if the file is unusable."""
    if not file:
        return ""
    try:
        path = Path(file)
        token, mode = path.read_text().strip(), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise BadSetting(f"http_token_file: {file}: {cause}", "use a readable file") from None
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise BadSetting(
            f"http_token_file: {file}: the token has {len(token)} characters (minimum "
            f"{TOKEN_CHARACTERS_MIN})",
            "use a longer token",
        )
    if not token.isascii() or not token.isprintable():
        raise BadSetting(
            f"http_token_file: {file}: the token is not one line of printable ASCII characters",
            "use a token of letters and digits",
        )
    if mode & OTHERS:
        facts = {"file": file, "remedy": f"run chmod 600 {file}"}
        logger.warning(line("token_exposed", facts))
    return token


def bearer(request: bytes) -> bytes:
    """Return the bearer token of a request, or b"" if it has none."""
    for each in request.split(b"\r\n")[1:]:
        name, _, value = each.partition(b":")
        scheme, _, token = value.strip().partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"bearer":
            return token.strip()
    return b""
