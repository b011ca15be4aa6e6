"""What every adapter tells the guard: who has the turn, what models answered, what tools returned.

A step is one answer of a model with the tools that it called; it is told to the run when the next
one begins, so that nothing more is spent after a stop. Turns that pass from one agent to another
are handoffs. A tool's call is evidence: a check that passed or failed, and what an agent's tools
have found in a step is an artefact, whose digest is that of arguments and results. Times and ids in
results are masked; those that a tool is asked about are not. So an agent whose tools find something
new makes progress, and one that asks the same and is answered the same does not. What models say
counts for nothing.

Frameworks call from several threads and tasks; one lock lets them in one at a time.
"""

import hashlib
import importlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import Any, NoReturn, TypeAlias

import msgspec

from handrail.guard import NO_USAGE, Guard, GuardedRun
from handrail.guard.errors import stopped
from handrail.guard.texts import name_of, text_in
from handrail.kernel.result import FIGURE_MAX, NO_EVIDENCE, TOOLS, Check, Evidence, Usage
from handrail.kernel.run.state import Stop
from handrail.kernel.signature import signature

Theirs: TypeAlias = Any
"""What is a framework's own: only who uses the framework has its types."""

DIGEST_CHARS = 16
TEXT_MAX = 2_000
"""Of what a model answered; the framework keeps the rest."""

SHOWN_MAX = 20_000
"""Of what a tool was given, where constraints have to look at it."""
LOOKED_AT_MAX = 1_000_000
"""Characters of what a tool was given or returned."""
_FIGURES = re.compile(r"(?<!\S)[^\s\d]*+\d\S*")
"""Words with a figure in them. Possessive, from the beginning of a word: each is looked at once."""

_NAMES = re.compile(
    r"\b\d{4}-\d\d-\d\d\b(?![T ]\d)"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[a-f]{0,63}\d)[0-9a-f]{7,64}\b",
    re.IGNORECASE,
)
"""Days, ids and digests: what a tool is asked about goes by them."""

TITLE_MAX = 200
END = object()
"""After the last piece of a stream."""

current: ContextVar["Watch | None"] = ContextVar("handrail_watch", default=None)
"""The run that is being watched here, for hooks that a framework keeps for longer than a run."""
_asking: ContextVar[tuple[str, ...]] = ContextVar("handrail_asking", default=())
"""The agent whose part this is, after those that have asked for it."""


class Watch:
    """One guarded run, as adapters see it. Every call returns the stop, once there is one."""

    def __init__(self, run: GuardedRun, *, in_clear: bool = False) -> None:
        self.run, self.in_clear = run, in_clear
        self.agent = ""
        """Who has the turn."""
        self.partial: Theirs = None
        self.stop: Stop | None = None
        self._lock = RLock()
        self._text = ""
        self._tokens = 0
        self.open = False
        """Whether there was a step that the run was not told of."""
        self._checks: list[Check] = []
        self._found: dict[str, list[str]] = {}
        """By agent, digests of what tools of this step have found, and were asked."""
        self._asked = Counter[tuple[tuple[str, ...], str]]()
        """Who is being asked, and by whom."""

    def turn(self, agent: str, *, source: str | None = None, reason: str = "") -> Stop | None:
        """The agent gets the turn from `source`; from whoever had it, if that is not said; from
        nobody, if it is empty. From somebody it is a handoff."""
        with self._lock:
            source = self.agent if source is None else source
            if self.open and (self._checks or not source):
                self._settle()
            if self.stop is None:
                said_by, self.agent, run = self.agent, agent, self.run
                if not run.opened_by:
                    run.opened_by = source or agent
                if self.open:
                    spent = Usage(tokens=self._tokens) if self._tokens else NO_USAGE
                    self.stop = run.moved(source, agent, reason, said_by, self._text, spent)
                    self._text, self._tokens, self.open = "", 0, False
                elif source:
                    self.stop = run.moved(source, agent, reason)
            return self.stop

    def resume(self, agent: str) -> Stop | None:
        """The turn is back with an agent that had only asked another one: no handoff."""
        with self._lock:
            if self.open:
                self._settle()
            self.agent = agent
            return self.stop

    def join(self, askers: tuple[str, ...], agent: str) -> Stop | None:
        """The agent's part begins, asked by the last of these, which the others have asked, or by
        nobody. Several parts at once are one handoff; one that is asked by somebody whom it has
        asked is another. Who has the turn, and is asked by nobody, goes on."""
        with self._lock:
            self._asked[askers, agent] += 1
            if self._asked[askers, agent] > 1 or (not askers and self.agent == agent):
                return self.resume(agent)
            return self.turn(agent, source=askers[-1] if askers else None)

    def leave(self, askers: tuple[str, ...], agent: str) -> None:
        """The agent's part is over; whoever asked has the turn back."""
        with self._lock:
            self._asked[askers, agent] -= 1
            if not self._asked[askers, agent]:
                del self._asked[askers, agent]
            if askers:
                self.resume(askers[-1])

    def step(self) -> Stop | None:
        """A model is about to be asked: the step before is over, and the run is told of it."""
        with self._lock:
            if self.open:
                self._settle()
            return self.stop

    def answered(self, text: str = "", tokens: int = 0) -> None:
        """A model has answered."""
        with self._lock:
            self._text, self.open = text[:TEXT_MAX], True
            if tokens > 0:
                self._tokens += int(tokens) if tokens < FIGURE_MAX else FIGURE_MAX

    def called(self, tool: str, given: object, found: object = "", error: object = None) -> None:
        """A tool has been called: what it was given, and what it returned or raised."""
        with self._lock:
            asked, failed, tool = text_of(given), error is not None, name_of(tool)
            wrong = text_in(text_of(error), TEXT_MAX) if failed else ""
            if not failed:
                whole = text_of(found)
                named = " ".join(_NAMES.findall(asked[:LOOKED_AT_MAX]))
                masked = signature(asked, whole) + _words(asked) + _words(whole)
                digests = self._found.setdefault(next(reversed(_asking.get()), self.agent), [])
                digests.append(_digest(f"{tool} {named} {masked}"))
            shown = f"{tool} {text_in(asked, SHOWN_MAX)}" if self.in_clear else tool
            self._checks.append(Check(command=shown, exit_code=int(failed), stderr=wrong))
            self.open = True

    def _settle(self) -> None:
        """Tells the run of the step that is over."""
        if self.stop is None:
            evidence = NO_EVIDENCE
            if self._checks:
                found = {
                    f"{TOOLS}{name_of(agent)}": _digest(" ".join(sorted(found)))  # in any order
                    for agent, found in self._found.items()
                }
                evidence = Evidence(files=found or None, checks=tuple(self._checks), measured=True)
                self._checks, self._found = [], {}
            spent = Usage(tokens=self._tokens) if self._tokens else NO_USAGE
            self.stop = self.run.told(self.agent, self._text, evidence, spent)
            self._text, self._tokens, self.open = "", 0, False

    @contextmanager
    def here(self) -> Generator[None]:
        """What happens inside is part of the run; who asked for a run of its own is not in it."""
        asking = _asking.get() if current.get() is self else ()
        before, asked = current.set(self), _asking.set(asking)
        try:
            yield
        finally:
            _asking.reset(asked)
            current.reset(before)

    def drawn(self, pieces: Theirs) -> Iterator[Theirs]:
        """What a framework yields; it is closed, whoever ends first."""
        with closing(pieces):
            while True:
                with self.here():
                    piece = next(pieces, END)
                if piece is END:
                    return
                yield piece

    async def drawn_async(self, pieces: Theirs) -> AsyncIterator[Theirs]:
        """The same of what is waited for."""
        async with aclosing(pieces):
            while True:
                with self.here():
                    piece = await anext(pieces, END)
                if piece is END:
                    return
                yield piece

    def check(self) -> None:
        """Raises the stop, if there is one: for hooks that end a framework's run by an error."""
        if self.stop is not None:
            raise stopped(self.stop, self.run, self.partial)


@contextmanager
def watching(guard: Guard, name: str, task: object = "") -> Generator[Watch]:
    """A run that an adapter watches. When the framework has come to rest a stop is raised, with
    what there is of its result; an error of its own passes through and is on record."""
    with streaming(guard, name, task) as watch, watch.here():
        yield watch


@contextmanager
def streaming(guard: Guard, name: str, task: object = "") -> Generator[Watch]:
    """As `watching`, for what is drawn piece by piece: what the caller does between two pieces is
    no part of the run."""
    with guard.run(name, task=text_of(task)[:TITLE_MAX], raises=False, team=name) as run:
        watch = Watch(run, in_clear=bool(guard.limits.constraints.commands))
        try:
            yield watch
            watch.step()
        except Exception:
            if watch.stop is None:
                raise
    watch.check()


@contextmanager
def joining(guard: Guard | None, agent: str, task: object = "") -> Generator[Watch]:
    """An agent's part in the run that is being watched already, or else a run of its own: for teams
    that are somebody's own loop over agents, or agents that ask others."""
    watch = current.get()
    if watch is not None:
        with _turn_of(watch, agent):
            yield watch
        watch.check()
        return
    with watching(guard or Guard(), agent, task) as watch, _turn_of(watch, agent):
        yield watch


@contextmanager
def _turn_of(watch: Watch, agent: str) -> Generator[None]:
    """An agent that was asked by another one gives the turn back when it is done."""
    askers = _asking.get()
    watch.join(askers, agent)
    before = _asking.set((*askers, agent))
    try:
        watch.check()
        yield
    finally:
        _asking.reset(before)
        watch.leave(askers, agent)


def framework(module: str, extra: str) -> Theirs:
    """A module of a framework, imported when it is used."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        from handrail.engine.extras import install  # only who misses something waits for it

        told = f"'{error.name}' is not installed; {install(extra)}"
        raise ModuleNotFoundError(told, name=error.name) from None


def refuse_stream(call: str, instead: str) -> NoReturn:
    """A call that would go past the guard is not made."""
    raise NotImplementedError(f"{call} cannot be guarded, so it is not called; {instead}")


def text_of(value: object) -> str:
    """One text for one value, whatever a framework passes."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, order="deterministic", enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value)


def _words(text: str) -> str:
    """All of the text, as far as anybody looks, without what has a figure in it: times and ids."""
    return _FIGURES.sub("#", text[:LOOKED_AT_MAX])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
