"""Show a run: as it happens, one line for each thing that a viewer wants to know; and its end, why
it stopped, what it waits for.

`EventFormatter` turns events into lines; `PlainView` writes them; `RichView` adds colour and, at
the bottom, a bar that shows how much of the certificate is used. The report says how it ended.
Agents' texts, and the names in definitions, are never taken as markup, and control no terminal.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TextIO

from handrail.cli.output import first_line, format_count, format_duration, format_time, printable
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
from handrail.views.report import format_ladder
from handrail.views.stop_explanation import explain_stop

if TYPE_CHECKING:
    from handrail.kernel.definition.certificate import Bound
    from handrail.views.history import StopView
    from handrail.views.report import RunReport
    from handrail.views.run_view import WaitReason


def stop_lines(stop: "StopView | None") -> Iterator[str]:
    """Yield the rule, what it saw, what was alike, and what would have let the run go on."""
    if stop is not None:
        yield from (f"{name}: {text}" for name, text in explain_stop(stop))


def waiting_lines(waiting: "tuple[WaitReason, ...]") -> Iterator[str]:
    """Yield for each position: what it waits for, since when, and what to do."""
    for wait in waiting:
        yield f"{wait.place}, since {format_time(wait.since)}: {wait.message.rstrip('.')}"
        yield f"  what to do: {wait.hint}"


def summary_lines(report: "RunReport", bound: "Bound") -> Iterator[str]:
    """Yield what the end of a run should show, beyond why."""
    stop, totals = report.stop, report.totals
    if stop is not None:
        yield f"{report.terminal_status} ({stop.rule}), the last one was {report.final_agent}"
    moves = ("transitions", totals.transitions - 1, bound.transitions)
    if report.kind == "team":
        moves = ("handoffs", totals.handoffs, bound.handoffs)
    used = f"{totals.dispatches} of {bound.dispatches} dispatches, {moves[1]} of {moves[2]}"
    stretches = f" in {totals.stretches} stretches" if totals.stretches > 1 else ""
    yield f"{used} {moves[0]}{stretches}, {format_duration(report.duration)}"
    yield from list(stop_lines(stop))[1:]  # the first is the rule
    warnings = format_count(len(report.warnings), "warning") if report.warnings else ""
    if counts := [count for count in (warnings, format_ladder(totals)) if count]:
        yield ", ".join(counts)


Style = Literal["move", "said", "doubt", "person", "good", "bad"]
StyledLine = tuple[str, Style]
MOVE_COLUMNS = 34
INDENT = " " * 9


class EventFormatter:
    """Formats events as lines; numbers are those of the stretch, against its certificate."""

    def __init__(self, bound: "Bound | None", kind: str) -> None:
        self.moves_max = self.dispatches_max = 0
        if bound is not None:
            self.moves_max = bound.transitions if kind == "workflow" else bound.handoffs
            self.dispatches_max = bound.dispatches
        self.moves = self.dispatches = 0

    def format_event(self, event: RunEvent) -> list[StyledLine]:
        match event:
            case Offered():
                self.dispatches += 1
                return []
            case Moved(renews=True):
                self.moves = self.dispatches = 0
                return [
                    _format_move("", event.source, event.targets, f"{event.outcome} by {event.by}")
                ]
            case Moved():
                why = f"{event.outcome}: {event.reason}" if event.reason else event.outcome
                return [_format_move(self._next_move_number(), event.source, event.targets, why)]
            case HandedOff():
                return [self._format_handoff(event)]
            case Reported():
                return _format_report(event)
            case _:
                return _format_other_event(event)

    def _next_move_number(self) -> str:
        self.moves += 1
        return f"{self.moves}/{self.moves_max}"

    def _format_handoff(self, event: HandedOff) -> StyledLine:
        if not event.accepted:
            return f"{INDENT}refused: {event.source} -> {event.target}", "doubt"
        why = f"{event.reason} (done before)" if event.already_done else event.reason
        if event.proposed:
            why = f"instead of {event.proposed[0]}, by {event.rule}: {event.reason}"
        return _format_move(self._next_move_number(), event.source, (event.target,), why)


def _format_report(event: Reported) -> list[StyledLine]:
    text = first_line(event.result.text)
    if event.wait is not None:
        text = f"waits for {event.wait.waits_for}, until {format_time(event.wait.not_before)}"
    if event.phase:
        detail = f", {event.phase_detail}" if event.phase_detail else ""
        text = f"{text} [{event.phase}{detail}]"
    agent = event.agent.partition("@")[0]  # a function of this process, by its plain name
    who = event.step_id if event.step_id == agent else f"{event.step_id} ({agent})"
    return [(f"{INDENT}{who}: {text}", "said")] if text else []


def _format_move(number: str, source: str, targets: tuple[str, ...], why: str) -> StyledLine:
    way = f"{source or 'a person'} -> {', '.join(targets)}"
    return f"{number:>7}  {way:<{MOVE_COLUMNS}} {first_line(why)}".rstrip(), "move"


def _format_other_event(event: RunEvent) -> list[StyledLine]:
    match event:
        case Faulted(step_id=step_id, message=message):
            return [(f"{INDENT}{step_id} gave no usable answer: {first_line(message)}", "doubt")]
        case Lost(step_id=step_id, reason=reason):
            return [(f"{INDENT}{step_id} was lost: {first_line(reason)}", "doubt")]
        case TimedOut(step_id=step_id, clock=clock):
            return [(f"{INDENT}{step_id} took too long ({clock})", "doubt")]
        case Warned(code=code, message=message):
            return [(f"{INDENT}warning: {first_line(message)} [{code}]", "doubt")]
        case Answered(by=by, decision=decision, text=text):
            suffix = f": {first_line(text)}" if text else ""
            return [(f"{INDENT}{by}, {decision}{suffix}", "person")]
        case _:
            return []


class PlainView:
    """Lines without colour, for files, pipes and logs."""

    def __init__(self, formatter: EventFormatter, out: TextIO) -> None:
        self.formatter, self.out = formatter, out

    def show_event(self, event: RunEvent) -> None:
        for text, _ in self.formatter.format_event(event):
            self.write(text)

    def write(self, text: str, style: Style | None = None) -> None:
        self.out.write(f"{printable(text)}\n")

    def read(self, prompt: str, /) -> str:
        self.out.write(prompt)
        self.out.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def close(self) -> None:
        self.out.flush()


class RichView(PlainView):
    """Adds colour, and the used part of the certificate at the bottom of the terminal."""

    STYLES: dict[Style, str] = {
        "move": "bold",
        "said": "dim",
        "doubt": "yellow",
        "person": "cyan",
        "good": "bold green",
        "bad": "bold red",
    }

    def __init__(self, formatter: EventFormatter, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(formatter, out)
        self.shown_footer = ""
        self.console = Console(file=out, highlight=False, markup=False, emoji=False)
        self.live = Live(console=self.console, transient=True, auto_refresh=False)
        self.live.start()

    def show_event(self, event: RunEvent) -> None:
        from rich.text import Text

        for text, style in self.formatter.format_event(event):
            self.write(text, style)
        footer = self.footer()
        if footer != self.shown_footer:
            self.shown_footer = footer
            self.live.update(Text(footer), refresh=True)

    def footer(self) -> str:
        formatter, size = self.formatter, 24
        filled = min(size, size * formatter.dispatches // max(1, formatter.dispatches_max))
        bar = "━" * filled + "┄" * (size - filled)
        usage = (
            f"{formatter.dispatches}/{formatter.dispatches_max} dispatches, "
            f"{formatter.moves}/{formatter.moves_max}"
        )
        return f"{bar} {usage} moves of the certificate"

    def write(self, text: str, style: Style | None = None) -> None:
        from rich.text import Text

        # A style of its own: one given to `print` would colour the bar below as well.
        self.console.print(
            Text(printable(text), style=self.STYLES[style] if style else ""), soft_wrap=True
        )

    def read(self, prompt: str, /) -> str:
        self.live.stop()
        try:
            return self.console.input(prompt)
        finally:
            self.live.start()

    def close(self) -> None:
        self.live.stop()
