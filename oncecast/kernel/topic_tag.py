"""The tag of a topic: the part of its name that decides which group of a ring owns it."""

from __future__ import annotations


def tag_of(topic: str) -> str:
    """Return the part of a topic's name that decides its owner: `b` in `a{b}c`, or all of it.

    Only the first pair of braces counts, and only if there is text between them.
    """
    begin = topic.find("{")
    end = topic.find("}", begin + 1) if begin >= 0 else -1
    return topic[begin + 1 : end] if end > begin + 1 else topic
