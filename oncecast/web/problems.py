"""The HTTP status of each error, and its body."""

from __future__ import annotations

from oncecast import errors
from oncecast.errors import OncecastError
from oncecast.web.shapes import Problem

STATUSES: dict[type[OncecastError], int] = {
    errors.BadRequest: 400,
    errors.NotAuthenticated: 401,
    errors.Denied: 403,
    errors.Revoked: 403,
    errors.CrossSite: 403,
    errors.NoSuchTopic: 404,
    errors.NotSubscribed: 404,
    errors.NoSuchPage: 404,
    errors.NotARing: 404,
    errors.WrongMethod: 405,
    errors.TooSlow: 408,
    errors.TopicExists: 409,
    errors.TopicReplaced: 409,
    errors.NameInUse: 409,
    errors.Fenced: 409,
    errors.Gap: 409,
    errors.Repositioned: 409,
    errors.WrongKind: 409,
    errors.Partitioned: 409,
    errors.NotAssigned: 409,
    errors.LeaseLost: 409,
    errors.Forgotten: 409,
    errors.NotKept: 409,
    errors.OtherContent: 409,
    errors.LevelTooLow: 409,
    errors.MessagesLost: 410,
    errors.PayloadTooLarge: 413,
    errors.BodyTooLarge: 413,
    errors.WrongContent: 415,
    errors.OutOfRange: 416,
    errors.WrongHost: 421,
    errors.InvalidTopic: 422,  # the request has the right form, but contradicts itself or a limit
    errors.InvalidName: 422,
    errors.InvalidArgument: 422,
    errors.HeadTooLarge: 431,
    errors.Overloaded: 503,
    errors.NoQuorum: 503,
    errors.NotConnected: 503,
    errors.Closed: 503,
    errors.TimedOut: 504,
    errors.TooMany: 507,
    OncecastError: 500,
}


def status_of(error: OncecastError) -> int:
    """Return the HTTP status of the error, or that of its nearest base class."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem_of(error: OncecastError) -> Problem:
    expected = error.expected if isinstance(error, errors.Gap) else None
    return Problem(
        code=error.code,
        message=error.message,
        remedy=error.remedy,
        status=status_of(error),
        expected=expected,
    )
