"""Users, their credentials, tokens and rules, as nodes store them and clients send them."""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from oncecast.kernel.protocol import Value

RuleKey = tuple[str, str, str]  # principal, topic pattern, name pattern


class Credentials(Value, tag="Credentials"):
    """The values that a node stores for a user. The password cannot be computed from them."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class User(Value, tag=False):
    """A user. `credentials` is None if the user logs in only with a certificate or a token."""

    name: str
    credentials: Credentials | None = None


class Token(Value, tag=False):
    id: str
    principal: str
    salt: bytes
    hash: bytes
    expires_us: int = 0  # end of the token's validity; 0 for no end


class Rule(Value, tag=False):
    """A rule that allows verbs on topics or, if it has no verbs, the use of names."""

    principal: str
    verbs: tuple[str, ...]
    topic: str = ""
    name: str = ""

    @property
    def key(self) -> RuleKey:
        return self.principal, self.topic, self.name


def token_id(text: str) -> str:
    """Return a token's id, which is not secret."""
    return text.partition(".")[0]
