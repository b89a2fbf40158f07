"""The HTTP interface: routes, sessions, and the files of the console."""

from oncecast.web.app import Application, application
from oncecast.web.limits import Limits

__all__ = ["Application", "Limits", "application"]
