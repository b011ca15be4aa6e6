"""A run as it happens: one line for each thing that somebody watching wants to know.

`Lines` turns events into lines; `PlainView` writes them; `RichView` adds colour and, at the bottom,
a bar that shows how much of the certificate is used. How it ended is the report's to say. Agents'
texts, and the names in definitions, are never taken as markup, and steer no terminal.
"""

import sys
from typing import Literal, Protocol, TextIO

from handrail.cli.words import clean, first_line
from handrail.kernel.certificate import Bound
from handrail.kernel.run.events import (
    Answered,
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reported,
    RunEvent,
    TimedOut,
    Warned,
)
from handrail.kernel.run.state import Run

Style = Literal["move", "said", "doubt", "person", "good", "bad"]
Line = tuple[str, Style]
WIDTH = 34
INDENT = " " * 9


class Lines:
    """Events to lines; numbers are those of the stretch, against its certificate."""

    def __init__(self, bound: Bound, kind: str) -> None:
        self.most = bound.transitions if kind == "workflow" else bound.handoffs
        self.dispatches_most = bound.dispatches
        self.moves = self.dispatches = 0

    def of(self, event: RunEvent, run: Run) -> list[Line]:
        match event:
            case Offered():
                self.dispatches += 1
                return []
            case Moved(renews=True):
                self.moves = self.dispatches = 0
                return [_move("", event.source, event.targets, f"{event.outcome} by {event.by}")]
            case Moved():
                why = f"{event.outcome}: {event.reason}" if event.reason else event.outcome
                return [_move(self._next(), event.source, event.targets, why)]
            case HandedOff():
                return [self._handed(event)]
            case Reported():
                return self._said(event, run)
            case _:
                return _rest(event)

    def _next(self) -> str:
        self.moves += 1
        return f"{self.moves}/{self.most}"

    def _handed(self, event: HandedOff) -> Line:
        if not event.accepted:
            return f"{INDENT}refused: {event.source} -> {event.target}", "doubt"
        why = f"{event.reason} (done before)" if event.already_done else event.reason
        return _move(self._next(), event.source, (event.target,), why)

    def _said(self, event: Reported, run: Run) -> list[Line]:
        text = first_line(event.result.text)
        if event.phase:
            detail = f", {event.phase_detail}" if event.phase_detail else ""
            text = f"{text} [{event.phase}{detail}]"
        agent = event.agent.partition("@")[0]  # a function of this process, by its plain name
        who = event.place if event.place == agent else f"{event.place} ({agent})"
        return [(f"{INDENT}{who}: {text}", "said")] if text else []


def _move(number: str, source: str, targets: tuple[str, ...], why: str) -> Line:
    way = f"{source or 'a person'} -> {', '.join(targets)}"
    return f"{number:>7}  {way:<{WIDTH}} {first_line(why)}".rstrip(), "move"


def _rest(event: RunEvent) -> list[Line]:
    match event:
        case Faulted(place=place, message=message):
            return [(f"{INDENT}{place} gave no usable answer: {first_line(message)}", "doubt")]
        case Lost(place=place, reason=reason):
            return [(f"{INDENT}{place} was lost: {first_line(reason)}", "doubt")]
        case TimedOut(place=place, clock=clock):
            return [(f"{INDENT}{place} took too long ({clock})", "doubt")]
        case Warned(code=code, message=message):
            return [(f"{INDENT}warning: {first_line(message)} [{code}]", "doubt")]
        case Answered(by=by, decision=decision, text=text):
            told = f": {first_line(text)}" if text else ""
            return [(f"{INDENT}{by}, {decision}{told}", "person")]
        case _:
            return []


class View(Protocol):
    def heard(self, event: RunEvent, run: Run) -> None: ...
    def write(self, text: str, style: Style | None = None) -> None: ...
    def read(self, prompt: str, /) -> str: ...
    def close(self) -> None: ...


class PlainView:
    """Lines without colour, for files, pipes and logs."""

    def __init__(self, lines: Lines, out: TextIO) -> None:
        self.lines, self.out = lines, out

    def heard(self, event: RunEvent, run: Run) -> None:
        for text, _ in self.lines.of(event, run):
            self.write(text)

    def write(self, text: str, style: Style | None = None) -> None:
        self.out.write(f"{clean(text)}\n")

    def read(self, prompt: str, /) -> str:
        self.out.write(prompt)
        self.out.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def close(self) -> None:
        self.out.flush()


class RichView:
    """Colour, and the used part of the certificate at the bottom of the terminal."""

    STYLES: dict[Style, str] = {
        "move": "bold",
        "said": "dim",
        "doubt": "yellow",
        "person": "cyan",
        "good": "bold green",
        "bad": "bold red",
    }

    def __init__(self, lines: Lines, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self.lines, self.shown = lines, ""
        self.console = Console(file=out, highlight=False, markup=False, emoji=False)
        self.live = Live(console=self.console, transient=True, auto_refresh=False)
        self.live.start()

    def heard(self, event: RunEvent, run: Run) -> None:
        from rich.text import Text

        for text, style in self.lines.of(event, run):
            self.write(text, style)
        footer = self.footer()
        if footer != self.shown:
            self.shown = footer
            self.live.update(Text(footer), refresh=True)

    def footer(self) -> str:
        lines, size = self.lines, 24
        full = min(size, size * lines.dispatches // max(1, lines.dispatches_most))
        bar = "━" * full + "┄" * (size - full)
        of = f"{lines.dispatches}/{lines.dispatches_most} dispatches, {lines.moves}/{lines.most}"
        return f"{bar} {of} moves of the certificate"

    def write(self, text: str, style: Style | None = None) -> None:
        from rich.text import Text

        # A style of its own: one given to `print` would colour the bar below as well.
        told = Text(clean(text), style=self.STYLES[style] if style else "")
        self.console.print(told, soft_wrap=True)

    def read(self, prompt: str, /) -> str:
        self.live.stop()
        try:
            return self.console.input(prompt)
        finally:
            self.live.start()

    def close(self) -> None:
        self.live.stop()
