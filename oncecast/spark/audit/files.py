"""Check that the files of a run are complete, before their messages are checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from oncecast.spark.audit.faults import Fault, Line
from oncecast.spark.audit.parsing import Block, Invalid, hashed
from oncecast.spark.audit.rows import FILE_BITS
from oncecast.spark.audit.trace import FORMAT, Begin, End, Killed

Incarnation = tuple[str, str, str]  # run, writer, incarnation


class Place(NamedTuple):
    """The numbers that identify a file, its run and its incarnation in each row."""

    file: int
    number: int
    salt: int  # hash of the run, so that names from different runs have different hashes
    incarnation: int
    certain: int


@dataclass
class File:
    path: str  # as reported by Spark
    lines: int = 0
    blocks: list[tuple[int, Block]] = field(default_factory=list)  # block and its first line number
    header: Begin | None = None
    end: End | None = None
    ended_at: int = 0  # the line number of `end`
    # Line numbers of headers in the middle of the file.
    strays: list[int] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, block: Block) -> None:
        self.blocks.append((self.lines + 1, block))
        self.lines += block.lines

    @property
    def run(self) -> str | None:
        return None if self.header is None else self.header.run

    @property
    def incarnation(self) -> Incarnation:
        assert self.header is not None
        return self.header.run, self.header.writer, self.header.incarnation

    @property
    def part(self) -> int:
        assert self.header is not None
        return self.header.part

    def invalid(self) -> Iterator[tuple[int, Invalid]]:
        for base, block in self.blocks:
            for each in block.invalid:
                yield base + each.place, each

    def found(self, fault: str, line: int | None = None, **about: Any) -> None:
        self.faults.append(Fault(fault, self.run, [Line(shown(self.path), line)], about))


def shown(path: str) -> str:
    """Return a local path without its scheme."""
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else path


class Files:
    """All files of an audit, built from the summaries of their blocks.

    If `killed` is true, accept a trace without an end record: its writer was killed.
    """

    def __init__(self, paths: Iterable[str], blocks: Iterable[Block], *, killed: bool) -> None:
        self._all_killed = killed
        self._killed: dict[Incarnation, Line] = {}
        found: dict[str, File] = {}
        for block in sorted(blocks, key=lambda each: (each.path, each.start)):
            found.setdefault(shown(block.path), File(block.path)).add(block)
        for path in paths:
            found.setdefault(shown(path), File(path))
        self._files = [found[path] for path in sorted(found)]
        for file in self._files:
            self._frame(file)
        for file in self._files:
            self._check(file)
        self._check_incarnations()
        self.faults = [fault for file in self._files for fault in file.faults]
        broken = {fault.run for fault in self.faults}
        whole = [each for each in self._files if each.run is not None and each.run not in broken]
        self.unchecked = sorted(run for run in broken if run is not None)
        self.kept = sorted(whole, key=lambda each: (each.incarnation, each.part))

    def __len__(self) -> int:
        return len(self._files)

    @property
    def lines(self) -> int:
        return sum(each.lines for each in self._files)

    def _frame(self, file: File) -> None:
        """Record the header, the end and the kills in a file."""
        for base, block in file.blocks:
            for each in block.framing:
                number, entry = base + each.place, each.entry
                if isinstance(entry, End):
                    file.end, file.ended_at = file.end or entry, file.ended_at or number
                elif isinstance(entry, Killed):
                    if entry.writer and file.header is not None:
                        who = (file.header.run, entry.writer, entry.incarnation)
                        self._killed[who] = Line(shown(file.path), number)
                elif number == 1:
                    file.header = entry
                else:
                    file.strays.append(number)

    # -- one file --

    def _check(self, file: File) -> None:
        if not file.lines:
            file.found("empty file")
        elif file.header is None:
            self._headless(file)
        else:
            self._number(file)
            if file.header.format != FORMAT:
                file.found("unknown format", 1, format=file.header.format)
        if file.header is None and file.faults:
            return  # one fault per file is enough
        for number in file.strays:
            file.found("second header", number)
        gone = file.header is not None and self._was_killed(file)
        for number, each in file.invalid():
            if not (gone and number == file.lines):
                file.found("invalid line", number, why=each.why, text=each.text)
        if file.end is not None and file.ended_at < file.lines:
            file.found("lines after the end", file.ended_at + 1)
        if file.end is None and not gone:
            file.found("cut tail", file.lines)

    def _number(self, file: File) -> None:
        """Compare the number in each line with its position in the file."""
        highest, last = 0, 0  # the highest number so far, and the last line that was checked
        for base, block in file.blocks:
            for piece in block.pieces:
                number = base + piece.place
                between = number - last - 1  # number of invalid lines before this one
                if piece.line <= highest:
                    file.found("repeated line", number)
                elif piece.line > highest + 1 + between:
                    file.found("missing line", number, lines=piece.line - highest - 1 - between)
                highest = max(highest, piece.line + piece.count - 1)
                last = number + piece.count - 1

    def _headless(self, file: File) -> None:
        pieces = [(base + each.place, each) for base, block in file.blocks for each in block.pieces]
        if not pieces:
            file.found("alien file", 1)
            return
        number, first = pieces[0]
        if first.line < number:
            file.found("no header", 1)
        elif first.line > number or number == 1:
            file.found("cut head", 1, lines=first.line - number)

    def _was_killed(self, file: File) -> bool:
        return file.incarnation in self._killed or (self._all_killed and file.end is None)

    # -- incarnations and runs --

    def _check_incarnations(self) -> None:
        parts: dict[Incarnation, dict[int, File]] = defaultdict(dict)
        for file in self._files:
            if file.header is None:
                continue
            same = parts[file.incarnation].setdefault(file.part, file)
            if same is not file:
                file.found("file given twice", None, same_as=shown(same.path))
        for who, found in parts.items():
            self._check_parts(who, found)
        writers: dict[str, set[str]] = defaultdict(set)
        for run, writer, _ in parts:
            writers[run].add(writer)
        for file in self._files:
            for writer in file.header.writers if file.header is not None else ():
                if writer not in writers[str(file.run)]:
                    file.found("missing file", 1, writer=writer)

    def _check_parts(self, who: Incarnation, parts: dict[int, File]) -> None:
        last = parts[max(parts)]
        for number in range(max(parts)):
            if number not in parts:
                last.found("missing file", 1, writer=who[1], part=number)
        if last.end is None or last.ended_at != last.lines:
            return
        if last.end.more and who not in self._killed:
            last.found("missing file", last.ended_at, writer=who[1], part=last.part + 1)
        if not last.end.more and who in self._killed:
            last.found("killed but complete", last.ended_at)
            last.faults[-1].lines.append(self._killed[who])

    # -- for auditing the messages --

    def places(self) -> list[Place]:
        known = sorted({each.incarnation for each in self.kept})
        sure = {each.incarnation for each in self.kept if each.end and each.end.complete}
        sure -= {each.incarnation for each in self.kept if each.end is None}
        sure -= set(self._killed)
        return [
            Place(
                hashed(file.path),
                number,
                hashed(file.run),
                known.index(file.incarnation),
                int(file.incarnation in sure),
            )
            for number, file in enumerate(self.kept)
        ]

    def line(self, at: int) -> tuple[str, Line]:
        """Return the run and the line at a position."""
        file = self.kept[at >> FILE_BITS]
        return str(file.run), Line(shown(file.path), at % (1 << FILE_BITS))
