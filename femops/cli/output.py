"""Output of commands: tables on a terminal, plain text elsewhere, JSON if requested."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 10_000  # columns of a terminal in which all tables fit


@final
@dataclass(frozen=True)
class Column:
    """Column of a table of dicts."""

    heading: str
    # key of the value in a dict, or a function from the dict to the value
    source: str | Callable[[dict[str, Any]], Any]
    form: str = ""  # format of a number, for `format`
    scale: float = 1.0  # factor by which a number is multiplied

    def value(self, record: dict[str, Any]) -> Any:
        """Return the column's value in a dict."""
        return record[self.source] if isinstance(self.source, str) else self.source(record)

    def text(self, value: Any) -> str:
        """Return the text to print for a value. None becomes a dash."""
        if value is None:
            return "-"
        return format(self.scale * value, self.form) if self.form else str(value)


def columns(text: str) -> tuple[Column, ...]:
    """Make columns from a text that describes each.

    Semicolons separate the descriptions ``heading: key form scale``, see `Column`. Form and scale
    may be omitted. The heading may be omitted if it equals the key.
    """
    found = []
    for item in text.split(";"):
        heading, colon, words = item.strip().partition(": ")
        key, *more = (words if colon else heading).split()
        form, scale = (more + ["", "1"][len(more) :])[:2]
        found.append(Column(heading, key, form, float(scale)))
    return tuple(found)


@final
class Output:
    """Standard output for results, standard error for progress."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = sys.stdout.isatty() and not as_json

    def json(self, document: Any) -> None:
        """Print a document, if the output is JSON."""
        if self.as_json:
            _write(json.dumps(document, indent=2, allow_nan=False))

    def say(self, text: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self.as_json:
            _print(text)

    def facts(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Print pairs of a name and a value, one per line, unless the output is JSON."""
        self.table(title, [("", "left"), ("", "left")], rows)

    def named(self, title: str, facts: Mapping[str, Any]) -> None:
        """Print values by name, one per line, unless the output is JSON."""
        self.facts(title, [(name.replace("_", " "), _text(each)) for name, each in facts.items()])

    def table(
        self, title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]
    ) -> None:
        """Print a table, unless the output is JSON."""
        if self.as_json:
            return
        if self.terminal:
            from rich.console import Console
            from rich.measure import Measurement

            console, table = Console(), _rich_table(title, columns, rows)
            words = Measurement.get(console, console.options.update_width(_WIDE), table).minimum
            if words <= console.width:  # rich would cut numbers in a narrower console
                console.print(table)
                return
        _plain_table(title, columns, rows)

    def records(
        self, title: str, columns: Sequence[Column], records: Sequence[dict[str, Any]]
    ) -> None:
        """Print a table of dicts, if there are any. Align words left and numbers right."""
        if records:
            values = [[column.value(record) for column in columns] for record in records]
            sides = ["left" if isinstance(value, str) else "right" for value in values[0]]
            heads = list(zip((column.heading for column in columns), sides, strict=True))
            texts = [[c.text(v) for c, v in zip(columns, line, strict=True)] for line in values]
            self.table(title, heads, texts)

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner on a terminal, and yield a function that takes a new text to show."""
        if not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.text import Text

        with _console().status(Text(printable(what))) as status:
            yield lambda text: status.update(Text(printable(text)))

    @contextmanager
    def counting(self, what: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
        """Show a progress bar on a terminal.

        Yield two functions: one of the number of steps, and one of the text of each new step.
        """
        if not sys.stderr.isatty():
            yield (lambda _: None), (lambda _: None)
            return
        from rich.progress import Progress, TextColumn

        _, *shown = Progress.get_default_columns()
        words = TextColumn("{task.description}", markup=False)
        with Progress(words, *shown, console=_console(), transient=True) as bar:
            task, begun = bar.add_task(printable(what), total=None), iter(range(-1, 10**9))

            def step(text: str) -> None:
                bar.update(task, description=printable(text), completed=next(begun) + 1)

            yield (lambda count: bar.update(task, total=count)), step

    @contextmanager
    def iterating(self, what: str) -> Iterator[Callable[[int, float], None] | None]:
        """Show a spinner on a terminal, with the iterations and the residual of a solve.

        Yield a function of these. Without a terminal yield None.
        """
        with self.working(what) as update:

            def tell(iterations: int, residual: float) -> None:
                update(f"{what}: iteration {iterations}, residual {residual:.1e}")

            yield tell if sys.stderr.isatty() else None

    @contextmanager
    def telling(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that prints a line on standard error, with the seconds so far."""
        begin = perf_counter()

        def tell(line: str) -> None:
            sys.stderr.write(f"{perf_counter() - begin:6.1f} s  {printable(line)}\n")
            sys.stderr.flush()

        yield tell


def _text(value: Any) -> str:
    """Text of one value of the facts, or of a list of values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, dict):
        names = (f"{name} = " + " + ".join(map(_text, group)) for name, group in value.items())
        return ", ".join(names) or "none"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def check_files(*files: tuple[Any, ...]) -> None:
    """Check, before the work starts, that files can be written, and that pictures can be drawn.

    A file is its path, or None, and the suffixes that it may have.
    """
    from femops.io.atomic import check_writable, checked_path
    from femops.io.plots.with_matplotlib import check_matplotlib

    for path, *suffixes in files:
        if path is not None:
            check_writable(checked_path(path, *suffixes))
    if any(path is not None and suffix in (".png", ".gif") for path, suffix, *_ in files):
        check_matplotlib()


def printable(text: str) -> str:
    """Write the characters that a terminal would obey, or not show, as escapes of Python.

    Names of files and texts in files may have such characters.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def tell(line: str) -> None:
    """Print a line of femops on standard error."""
    sys.stderr.write(f"femops: {printable(line)}\n")


def _print(line: str) -> None:
    _write(printable(line))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _console() -> Console:
    """Console for progress, which keeps the cursor: a killed process could not show it again."""
    from rich.console import Console

    @final
    class Steady(Console):
        def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002  (it stays)
            return False

    return Steady(stderr=True)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def unwinding() -> Iterator[None]:
    """Let a request to terminate (SIGTERM, SIGHUP) leave the block by an exception.

    So the block ends the processes that it started, and removes its temporary files. A signal that
    the process ignores, as under nohup, stays ignored.
    """
    asked = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    found = {number: signal.getsignal(number) for number in asked}
    before = {n: handler for n, handler in found.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, _leave)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _rich_table(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    headed = any(heading for heading, _ in columns)
    named = Text(printable(title), style="table.title")
    table = Table(title=named, title_justify="left", box=box.ROUNDED, show_header=headed)
    for heading, justify in columns:
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _plain_table(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]
) -> None:
    headings = [heading for heading, _ in columns]
    lines = [headings, *rows] if any(headings) else list(rows)
    widths = [max((len(line[k]) for line in lines), default=0) for k in range(len(columns))]
    if title:
        _print(title)
    for line in lines:
        cells = [
            cell.rjust(width) if side == "right" else cell.ljust(width)
            for cell, width, (_, side) in zip(line, widths, columns, strict=True)
        ]
        _print("  " + "  ".join(cells).rstrip())


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning as one line on standard error, without its file and line number."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def quantity(value: float, unit: str) -> str:
    """Text of a number with a metric prefix and a unit: 1234567 -> '1.23 M' + unit."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
