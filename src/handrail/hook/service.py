"""Answers one hook payload after the other: reads it, judges it, keeps the conversation.

Whatever goes wrong, there is an answer. What cannot be read or kept lets the agent go on, with a
word on standard error, and to the user where a turn begins or ends; with `fail="closed"` tool calls
are refused instead.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.guard.run import SERVER_URL_PREFIXES, Guard
from handrail.hook.answers import GO_ON, HookVerdict, VerdictKind, format_answer
from handrail.hook.options import HookOptions
from handrail.hook.payloads import EventKind, HookEvent, PayloadError, read_payload
from handrail.hook.record import ConversationStore, HookRecordError
from handrail.hook.session import Conversation
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.definition.reader import read_stop_rules

CONVERSATIONS_IN_MEMORY = 64
BLOCKING_EXIT_CODE = 2
"""By which every agent takes a hook program for one that refuses."""
NOTICE_KINDS = (EventKind.PROMPT, EventKind.TURN_END)
"""Events whose answers show the user a notice; others come too often."""


class HookAnswer(Value):
    """What the hook program prints, and its exit code."""

    stdout: bytes = b""
    stderr: str = ""
    exit_code: int = 0


class RulesError(ValueError):
    """The file of stop rules cannot be used."""


class CachedConversation:
    """A conversation in memory, as of a version of the stored one and under a guard's rules."""

    def __init__(
        self, conversation: Conversation, version: int, options: HookOptions, guard: Guard
    ) -> None:
        self.conversation, self.version = conversation, version
        self.options, self.guard = options, guard
        self.changed_at = 0.0


class HookService:
    """Judges the payloads of any number of conversations."""

    def __init__(
        self, folder: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.store, self.clock = ConversationStore(folder), clock
        self.conversations: OrderedDict[str, CachedConversation] = OrderedDict()
        self.has_ended_runs = False
        """Whether runs wait to be written to a database."""
        self.problems = {"database": "", "server": ""}
        """Why runs are not recorded, for the user."""
        self._guards: dict[tuple[str, int], Guard] = {}

    def answer(self, raw: bytes, options: HookOptions) -> HookAnswer:
        """Answer one payload; never raises."""
        try:
            event = read_payload(raw, options.agent)
        except PayloadError as error:
            code = BLOCKING_EXIT_CODE if options.fail == "closed" else 0
            return HookAnswer(stderr=_explain(str(error), options), exit_code=code)
        try:
            verdict = self._judge(event, options)
            problem = "; ".join(filter(None, self.problems.values()))
            if problem and event.kind in NOTICE_KINDS:
                verdict = replace(verdict, notice=f"handrail hook: {problem}")
            return HookAnswer(stdout=format_answer(event, verdict), stderr=verdict.notice)
        except (HookRecordError, RulesError) as error:
            return self._give_up(event, options, str(error))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}; this should not happen, please report it"
            return self._give_up(event, options, reason)

    def _give_up(self, event: HookEvent, options: HookOptions, reason: str) -> HookAnswer:
        """Answer without a judgement."""
        self.conversations.pop(conversation_key(event), None)
        message = _explain(reason, options)
        if options.fail == "closed" and event.kind is EventKind.TOOL_PROPOSED:
            verdict = HookVerdict(kind=VerdictKind.STOPPED, text=message)
        elif event.kind in NOTICE_KINDS:
            verdict = HookVerdict(notice=message)
        else:
            verdict = GO_ON
        return HookAnswer(stdout=format_answer(event, verdict), stderr=message)

    def _judge(self, event: HookEvent, options: HookOptions) -> HookVerdict:
        if event.kind is EventKind.OTHER:
            return GO_ON
        key, store = conversation_key(event), self.store
        if event.kind is EventKind.TOOL_PROPOSED:
            with store.reading():
                if self._load(key, options).conversation.stop is None:
                    return GO_ON
        with store.writing():
            cached = self._load(key, options)
            verdict = cached.conversation.handle(event)
            self._save(key, cached, options)
        return verdict

    def _load(self, key: str, options: HookOptions) -> CachedConversation:
        """Return the conversation in memory, if nobody else has gone on with it, or load it."""
        guard = self._guard(options.rules)
        with self.store.reading() as connection:
            version = self.store.version(connection, key)
            cached = self.conversations.get(key)
            if cached is not None and cached.guard is guard and cached.version == version:
                self.conversations.move_to_end(key)
                cached.options = options
                return cached
            row = self.store.load(connection, key)
        conversation = (
            Conversation(guard, new_id)
            if row is None
            else Conversation(guard, new_id, row.state, row.memories)
        )
        cached = CachedConversation(conversation, version, options, guard)
        self.conversations[key] = cached
        while len(self.conversations) > CONVERSATIONS_IN_MEMORY:
            self.conversations.popitem(last=False)
        return cached

    def _save(self, key: str, cached: CachedConversation, options: HookOptions) -> None:
        conversation, now = cached.conversation, self.clock()
        events = conversation.take_events()
        state = conversation.state()
        if state is None:
            return
        with self.store.reading() as connection:
            memories = conversation.memories(events)
            self.store.save(connection, key, cached.version, state, memories, now)
            if options.record and not options.record.startswith(SERVER_URL_PREFIXES):
                team, url = conversation.actor, options.record
                ended = self.store.add_events(connection, key, events, team, url)
                self.has_ended_runs = self.has_ended_runs or ended
        cached.version += 1
        cached.changed_at = now.timestamp()

    def end_turn(self, key: str, options: HookOptions) -> None:
        """End the run of a conversation's turn, which was quiet after the agent ended it."""
        with self.store.writing():
            cached = self._load(key, options)
            cached.conversation.end_turn()
            self._save(key, cached, options)

    def _guard(self, rules: str) -> Guard:
        changed_at = 0
        if rules:
            try:
                changed_at = Path(rules).stat().st_mtime_ns
            except OSError as error:
                raise RulesError(f"the stop rules cannot be read: {error}") from None
        if (rules, changed_at) not in self._guards:
            self._guards.clear()
            self._guards[rules, changed_at] = Guard(
                read_rules_file(Path(rules)) if rules else StopRules(), clock=self.clock
            )
        return self._guards[rules, changed_at]


def read_rules_file(path: Path) -> StopRules:
    """Read stop rules from a JSON file. Raises RulesError."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RulesError(f"the stop rules in {path} cannot be read: {error}") from None
    rules, problems = read_stop_rules(document)
    unknown = sorted(document.keys() - set(StopRules.__struct_fields__))
    texts = [*map(str, problems), *(f"there is no limit '{name[:80]}'" for name in unknown)]
    if rules is None or texts:
        raise RulesError(f"the stop rules in {path}: {'; '.join(texts)}")
    return rules


def conversation_key(event: HookEvent) -> str:
    return "\n".join((event.agent, event.session, event.subagent))


def new_id() -> str:
    return os.urandom(16).hex()


def _explain(reason: str, options: HookOptions) -> str:
    is_closed = options.fail == "closed"
    consequence = "its tool calls are refused" if is_closed else "the agent goes on unguarded"
    return f"handrail hook: {reason}; {consequence}"
