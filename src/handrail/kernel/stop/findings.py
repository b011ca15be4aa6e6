r"""What a step showed, reduced to digests: tool calls with their answers, texts, states.

A *finding* has a key (what was asked, or who speaks) and an answer (what came back). Two findings
are the same if both are equal; so the rules compare digests and never texts, and a recorded run
holds no text of a stranger's program.

Rules
1. Equal stays equal: times, durations, addresses and ids in short answers are masked, because they
   differ from one try to the next and say nothing. Arguments are compared to the letter: another
   order number, another indentation is another call.
2. An answer that is like an earlier answer to the same call has that answer's digest. It is like it
   if at least ALIKE of their words are common; words with digits are compared apart. It is compared
   with the first answers, not with the last, so that likeness cannot drift.
3. An answer that differs from an earlier one in figures only is *weak*, FIGURES_MAX times per call;
   after that it is the same answer. So is a state in which numbers only grew: a counter is no news.
4. A failed call has an error: a digest that is the same for the same failure. A silent failure has
   none, since nothing tells it from another.
5. A call that waits is *pending* when it brings nothing new: one whose answer says "not ready" or
   how far something is, or that sleeps. Time counts then, not the number of calls. So is a provider
   that is away.
6. What an agent writes to itself is a *note*: a thought, a list of what is to be done. Its tool's
   answer says nothing, so a note is compared by what was written, and is never pending.
7. The cost is bounded. The digest is of the whole text, or of the head, the tail and the length of
   a long one: what has their words in common is the same in any case. Words are taken from head and
   tail only, and only where one call had different answers.

Not here: what is new (`news.py`), what repeats and when a run stops (`rules.py`).
"""

import functools
import hashlib
import operator
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import filterfalse
from typing import Any, cast

import msgspec

from handrail.kernel.decision import Value

ALIKE = 0.8
"""The share of common words from which on two answers to one call are the same."""
FIGURES_MAX = 5
"""Answers of one call that differ in figures only and are still weak news."""
LONG_TEXT_CHARS = 200
"""From this length on, a text is a finding that counts on its own, as a tool's answer does."""
MASKED_CHARS_MAX = 1_000
"""In longer answers a clock or an id does not matter: words in common decide."""
COMPARED_CHARS = 1_500
"""Characters of the head and of the tail from which words are taken."""
ANSWERS_KEPT, KEYS_KEPT = 4, 512
"""Answers of one key, keys of one run."""
START_CHARS = 60
"""Characters of a long text by which two are seen to begin alike."""
PENDING_CHARS_MAX = 300
"""Longer answers say more than that something is not ready."""
EXCEPTION_CHARS_MAX = 200
"""In an answer this short, the name of an exception means that the call failed."""
STATE_DEPTH_MAX, STATE_ITEMS_MAX = 8, 2_000
DIGEST_BYTES = 8

_NOISE = re.compile(
    r"\b(?:(?=\d)(?:\d{4}-\d\d-\d\d[Tt ]\d\d:\S+|\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b"
    r"|0[xX][0-9a-fA-F]+\b|1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b"
    r"|\d+(?:\.\d+)? ?(?i:ns|µs|us|ms|s|secs?|seconds?|minutes?)\b)"
    r"|(?=[0-9a-fA-F]{7})(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|(?=\d*[a-fA-F])(?=[a-fA-F]*\d)[0-9a-fA-F]{7,40}\b))"
)
"""What differs between two tries and says nothing."""
_MAY_BE_NOISE = (
    re.compile(r"\d(?:[:-]\d|[xX][0-9a-fA-F]| ?(?i:[nuµms]))"),
    re.compile(r"[\da-fA-F][\da-fA-F]{6}"),
)
"""One of these is in all such noise: a text is searched for them in a fraction of the time."""
_NO_FAILURE = r"(?![\"']?\s*[:=]\s*(?:0\b|null|none|false|\"\"|''|\[\s*\]|\{\s*\}))"
"""What follows the name of a field that tells of no failure."""
_FAILURE_START = re.compile(
    r"\W{0,3}(?:error|exception|traceback|fatal|failed|failure|fehler|erreur|errore|erro|ошибка"
    rf"|错误|錯誤|エラー|오류)\b{_NO_FAILURE}|\S{{1,60}}(?:Error|Exception)\b{_NO_FAILURE}"
    r"|[\w./-]{1,40}: (?:error|fatal)\b|(?:/bin/)?(?:ba)?sh: ",
    re.IGNORECASE,
)
"""How answers begin that report a failure, where the host does not know."""
_FAILURE_FIELD = re.compile(
    r"[\"'](?:success|ok)[\"']\s*:\s*false\b|[\"']is_?error[\"']\s*:\s*true\b"
    r"|[\"']status[\"']\s*:\s*[\"'](?:error|failed|failure)[\"']",
    re.IGNORECASE,
)
"""How the first fields of a JSON object report a failure."""
_EXCEPTION_NAME = re.compile(r"\b[A-Z]\w+(?:Error|Exception)\b")
_AT_WORK = (
    r"(?:analy[sz]|boot|build|compil|copy|creat|deploy|download|encod|execut|generat|index|initiali[sz]|install"
    r"|load|migrat|prepar|process|provision|queu|render|restart|roll|runn|start|stopp|sync|terminat"
    r"|train|transcod|upload|validat|verify|wait|warm)ing"
)
_PENDING = re.compile(
    r"\b(?:pending|queued|enqueued|running|processing|in[ _-]progress|in the queue|scheduled"
    r"|not (?:yet )?(?:ready|done|finished|available|complete)|please wait|still \w+ing"
    r"|check back|(?:retry|try again|come back) (?:later|soon|in \d))\b"
    rf"|^\W*(?:(?:now|currently|status:?|state:?)\s+)?{_AT_WORK}\b"
    rf"|[\"']?\b(?:status|state|phase|stage)[\"']?\s*[:=]\s*[\"']?{_AT_WORK}\b"
    rf"|\b{_AT_WORK}\s*(?:\.\.|…)|\b\d{{1,2}}(?:\.\d+)? ?%",
    re.IGNORECASE,
)
"""How a short answer says that something is not ready, or how far it is."""
_AWAY = re.compile(
    r"\b(?:too many requests|rate.?limit(?:ed)?|(?:service|temporarily) unavailable|overloaded"
    r"|bad gateway|gateway time-?out|(?:server|system) (?:is )?(?:too )?busy|at capacity"
    r"|(?:retry|try again) (?:later|in \d)|not ready yet"
    r"|(?:status|code|http|error)\W{0,3}(?:429|50[234]|529))\b",
    re.IGNORECASE,
)
"""How a provider says that it is away; this is no failure of the call."""
_TIMEOUT = re.compile(r"\btimed? ?out\b", re.IGNORECASE)
_SLEEP = re.compile(
    r"\bsleep[ (]\W{0,2}\d|\bstart-sleep\b|[\"']action[\"']\s*:\s*[\"']wait[\"']", re.IGNORECASE
)
"""How a command says that it waits."""
_WAIT_TOOLS = frozenset(("sleep", "wait", "wait_for", "wait_seconds", "pause"))
_TOOL_PATH = re.compile(r"__|[./:]")
_TOOL_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_THOUGHT_WORD = re.compile(
    r"think|thinking|thoughts?|sequentialthinking|scratchpad|todos?|ponder|reflect(?:ion)?|brainstorm"
)
"""A tool with such a word in its name holds what an agent tells itself."""
_NOTE_WORD = re.compile(r"notes?|memos?|memory|plan|journal|checklist|reasoning")
_NOTE_FILLER = re.compile(
    r"add|append|core|create|insert|jot|keep|log|make|my|record|replace|save|set|store|take|text"
    r"|the|to|tool|update|working|write"
)
"""A tool whose name has a word of the first kind, and else only of the second, does so, too."""
_ENVELOPE = re.compile(r"<[^>]*>|\b\d+\b|exit ?code|return ?code|output|\W+", re.IGNORECASE)
"""What wraps an answer and does not belong to it."""
_DIGIT = re.compile(r"\d")
_BAR = re.compile(r"[\W_]{3,}")
"""A piece of a progress bar or of a ruled line: no word."""
_NOT_WORD = re.compile(r"\W+")
_HEX_TO_LETTERS = str.maketrans("0123456789abcdef", "ghjkmnpqrstvwxyz")
_SEPARATORS = str.maketrans(dict.fromkeys("\"'`{}[]()<>,;:=|，。、；：（）「」！？", " "))
"""What separates words besides white space: JSON may have none."""


class FindingKind(StrEnum):
    CALL = "call"
    TEXT = "text"
    STATE = "state"
    HANDOFF = "handoff"
    """An answer that does nothing but hand over."""
    PERSON = "person"
    """What a person, or the host, said."""


class Likeness(StrEnum):
    """How like an answer is to earlier answers to the same call."""

    NEW = "new"
    FIGURES = "figures"
    """It differs from one in figures only."""
    SAME = "same"


class StepFinding(Value):
    """One thing that a step showed."""

    kind: FindingKind
    key: str
    """The digest of what was asked: agent, tool and arguments; for texts and states the agent."""
    answer: str = ""
    """The digest of what came back; empty if nobody knows it."""
    agent: str = ""
    tool: str = ""
    error: str = ""
    """The digest of the failure, if the call failed and said how."""
    failed: bool = False
    pending: bool = False
    weak: bool = False
    """Differs from an earlier answer in figures only."""
    short: bool = False
    """A text so short that it proves nothing alone."""
    start: str = ""
    """The digest of how a long text begins."""
    timed_out: bool = False
    """The call failed because time ran out."""
    note: bool = False
    """What the agent wrote to itself."""
    effect: bool = False
    """The call changed something outside of the run."""
    what: str = ""
    """The call or the text in words, where texts are recorded."""


class AnswerMemory(Value):
    """An answer as it is stored between two processes: no word of it can be read."""

    digest: str
    words: tuple[int, ...]
    figures: tuple[int, ...]


class CallMemory(Value):
    """The answers to one call, and how many of them differed in figures only."""

    answers: tuple[AnswerMemory, ...]
    figures: int = 0


class _Answer:
    """An answer as later ones are compared with it; words are taken when first needed, as their
    checksums.
    """

    def __init__(self, digest: str, text: str) -> None:
        self.digest, self._text = digest, text

    @functools.cached_property
    def _all_words(self) -> frozenset[str]:
        return frozenset(filterfalse(_BAR.fullmatch, self._text.translate(_SEPARATORS).split()))

    @functools.cached_property
    def figures(self) -> frozenset[int]:
        """Words with a digit."""
        return _checksums(filter(_DIGIT.search, self._all_words))

    @functools.cached_property
    def words(self) -> frozenset[int]:
        return _checksums(word for word in self._all_words if not _DIGIT.search(word))

    @classmethod
    def restore(cls, memory: AnswerMemory) -> "_Answer":
        answer = cls(memory.digest, "")
        answer.words, answer.figures = frozenset(memory.words), frozenset(memory.figures)
        return answer

    def to_memory(self) -> AnswerMemory:
        return AnswerMemory(
            digest=self.digest,
            words=tuple(sorted(self.words)),
            figures=tuple(sorted(self.figures)),
        )

    def is_like(self, other: "_Answer") -> bool:
        common = len(self.words & other.words)
        return common >= ALIKE * (len(self.words) + len(other.words) - common)


def _checksums(words: Iterable[str]) -> frozenset[int]:
    return frozenset(zlib.crc32(word.encode(errors="replace")) for word in words)


class _StateHistory:
    """The states of one agent: contents without numbers, and the numbers last seen with them."""

    def __init__(self) -> None:
        self.numbers: dict[str, tuple[float, ...]] = {}
        self.grown = 0


class FindingReader:
    """Reads the findings of one run. It remembers earlier answers, as many as its bounds allow."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, list[_Answer]] = OrderedDict()
        self._figures: dict[str, int] = {}
        self._states: OrderedDict[str, _StateHistory] = OrderedDict()

    def recall(self, key: str) -> CallMemory | None:
        """Return what is remembered of the call with this key, to be restored in another process;
        None if that is nothing.
        """
        answers = self._answers.get(key)
        if not answers:
            return None
        return CallMemory(
            answers=tuple(answer.to_memory() for answer in answers),
            figures=self._figures.get(key, 0),
        )

    def remember(self, memories: Iterable[tuple[str, CallMemory]]) -> None:
        """Restore what was remembered of calls, by key, the call that was quiet longest first."""
        for key, memory in memories:
            self._answers[key] = [_Answer.restore(answer) for answer in memory.answers]
            if memory.figures:
                self._figures[key] = memory.figures

    def read_call(
        self,
        agent: str,
        tool: str,
        arguments: str,
        result: str | None,
        *,
        failed: bool | None = None,
        effect: bool = False,
    ) -> StepFinding:
        """Read a tool call; `failed` is None where the host does not know."""
        key = digest_text(agent, tool, arguments.strip())
        if is_note_tool(tool) and not failed and not (result and reports_failure(result)):
            return StepFinding(
                kind=FindingKind.CALL,
                key=key,
                answer=NOTE_ANSWER,
                agent=agent,
                tool=tool,
                effect=effect,
                note=True,
            )
        if result is None:
            return StepFinding(
                kind=FindingKind.CALL, key=key, agent=agent, tool=tool, effect=effect
            )
        has_failed = failed or (failed is None and reports_failure(result))
        is_pending = has_failed and is_away(result)
        answer, likeness = ("", Likeness.NEW) if is_pending else self._compare(key, result)
        if not is_pending and likeness is not Likeness.NEW:
            is_pending = is_sleep(tool, arguments) or (
                not has_failed and (is_unready(result) or is_away(result))
            )
        if is_pending:
            return StepFinding(
                kind=FindingKind.CALL,
                key=key,
                agent=agent,
                tool=tool,
                pending=True,
                effect=effect,
            )
        return StepFinding(
            kind=FindingKind.CALL,
            key=key,
            answer=answer,
            agent=agent,
            tool=tool,
            error=digest_text(agent, tool, answer) if has_failed and not is_silent(result) else "",
            failed=has_failed,
            timed_out=has_failed and _TIMEOUT.search(result[-COMPARED_CHARS:]) is not None,
            weak=likeness is Likeness.FIGURES,
            effect=effect,
        )

    def read_text(self, agent: str, text: str) -> StepFinding | None:
        """Read what an agent said without calling a tool; None if that is nothing."""
        words = normalize_text(text)
        if not words:
            return None
        is_long = len(text) >= LONG_TEXT_CHARS
        key = digest_text("text", agent, "" if is_long else words)
        answer = self._compare(key, words)[0] if is_long else digest_text(words)
        return StepFinding(
            kind=FindingKind.TEXT,
            key=key,
            answer=answer,
            agent=agent,
            short=not is_long,
            start=digest_text("start", agent, words[:START_CHARS]) if is_long else "",
        )

    def read_handoff(self, agent: str, target: str, reason: str) -> StepFinding:
        """Read an answer that does nothing but hand over."""
        answer = digest_text(target, normalize_text(reason))
        return StepFinding(
            kind=FindingKind.HANDOFF,
            key=_digest_key("handoff", agent),
            answer=answer,
            agent=agent,
            short=True,
        )

    def read_person(self, text: str) -> StepFinding:
        """Read what a person, or the host, said to an agent."""
        return StepFinding(
            kind=FindingKind.PERSON, key=digest_text("person"), answer=digest_text(text)
        )

    def read_state(self, agent: str, state: Mapping[str, Any] | str) -> StepFinding:
        """Read the state that an agent left; a text is its digest, made by the host."""
        key = _digest_key("state", agent)
        if isinstance(state, str):
            return StepFinding(
                kind=FindingKind.STATE, key=key, agent=agent, answer=digest_text(state)
            )
        describer = _StateDescriber()
        contents = describer.describe(state)
        numbers, digest = tuple(describer.numbers), digest_text(contents)
        history = self._states.setdefault(key, _StateHistory())
        _forget_oldest(self._states)
        earlier = history.numbers.get(digest)
        history.numbers[digest] = numbers
        if len(history.numbers) > KEYS_KEPT:
            del history.numbers[next(iter(history.numbers))]
        if earlier is None or earlier == numbers:
            return StepFinding(kind=FindingKind.STATE, key=key, agent=agent, answer=digest)
        if len(earlier) == len(numbers) and all(map(operator.le, earlier, numbers)):
            history.grown += 1
            is_weak = history.grown <= FIGURES_MAX
            return StepFinding(
                kind=FindingKind.STATE, key=key, agent=agent, answer=digest, weak=is_weak
            )
        return StepFinding(
            kind=FindingKind.STATE,
            key=key,
            agent=agent,
            answer=digest_text(contents, repr(numbers)),
        )

    def _compare(self, key: str, text: str) -> tuple[str, "Likeness"]:
        """Return the digest of the answer that the text is like, or else its own; and how like it
        is.
        """
        answers = self._answers.setdefault(key, [])
        self._answers.move_to_end(key)
        _forget_oldest(self._answers)
        if len(text) <= MASKED_CHARS_MAX:
            text = _mask_noise(text)
        if len(text) <= 2 * COMPARED_CHARS:
            digest = digest_text(text)
        else:
            chars = len(text)
            text = f"{text[:COMPARED_CHARS]} {text[-COMPARED_CHARS:]}"
            digest = digest_text(text, str(chars))
        for earlier in answers:
            if earlier.digest == digest:
                return digest, Likeness.SAME
        answer = _Answer(digest, text)
        for earlier in answers:
            if earlier.is_like(answer):
                if earlier.figures == answer.figures:
                    return earlier.digest, Likeness.SAME
                self._figures[key] = count = self._figures.get(key, 0) + 1
                is_weak = count <= FIGURES_MAX
                return earlier.digest, Likeness.FIGURES if is_weak else Likeness.SAME
        if len(answers) < ANSWERS_KEPT:
            answers.append(answer)
        else:
            answers[-1] = answer
        return digest, Likeness.NEW


def is_away(result: str) -> bool:
    """Whether a short answer says that a provider is away for now."""
    return len(result) <= PENDING_CHARS_MAX and _AWAY.search(result) is not None


def is_unready(result: str) -> bool:
    """Whether a short answer says that something is not ready."""
    return len(result) <= PENDING_CHARS_MAX and _PENDING.search(result) is not None


def is_sleep(tool: str, arguments: str) -> bool:
    """Whether a call lets time pass."""
    return tool.lower() in _WAIT_TOOLS or _SLEEP.search(arguments[:COMPARED_CHARS]) is not None


@functools.lru_cache(maxsize=KEYS_KEPT)
def is_note_tool(tool: str) -> bool:
    """Whether an agent writes to itself with this tool, or reads what it wrote."""
    name = _TOOL_PATH.split(tool)[-1]
    words = [word.lower() for word in _TOOL_WORD.findall(name)]
    if any(map(_THOUGHT_WORD.fullmatch, words)):
        return True
    others = [word for word in words if not _NOTE_WORD.fullmatch(word)]
    return len(others) < len(words) and all(map(_NOTE_FILLER.fullmatch, others))


def reports_failure(result: str) -> bool:
    """Whether an answer reports a failure, by how it begins or by naming an exception."""
    start = result[:EXCEPTION_CHARS_MAX].lstrip()
    if _FAILURE_START.match(start) is not None:
        return True
    if start.startswith("{") and _FAILURE_FIELD.search(start) is not None:
        return True
    if len(result) >= EXCEPTION_CHARS_MAX or ("Error" not in start and "Exception" not in start):
        return False
    return _EXCEPTION_NAME.search(start) is not None


def is_silent(result: str) -> bool:
    """Whether a failure says nothing about itself: no text, or an exit code alone."""
    return len(result) < PENDING_CHARS_MAX and len(_ENVELOPE.sub("", result)) < 3


def normalize_text(text: str) -> str:
    """Return a text without case, white space and punctuation; digits stay."""
    return " ".join(_NOT_WORD.sub(" ", text.lower()).split())


def digest_text(*texts: str) -> str:
    """Return the digest of texts; a length before each keeps their borders."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        encoded = text.encode(errors="replace")
        hasher.update(b"%d:" % len(encoded))
        hasher.update(encoded)
    return hasher.hexdigest()


NOTE_ANSWER = digest_text("note")
"""What every note brings back: nothing."""


@functools.lru_cache(maxsize=KEYS_KEPT)
def _digest_key(kind: str, agent: str) -> str:
    """Return the key of what one agent leaves, which it leaves again and again."""
    return digest_text(kind, agent)


def _mask_noise(text: str) -> str:
    """Return the text without what differs between two tries."""
    figures, ids = _MAY_BE_NOISE
    if figures.search(text) is None and ids.search(text) is None:
        return text
    return _NOISE.sub("#", text)


def digest_letters(text: str) -> str:
    """Return a digest of letters only, which no signature takes for an id and masks."""
    return digest_text(text).translate(_HEX_TO_LETTERS)


class _StateDescriber:
    """Describes one state: its contents without numbers, and the numbers in the order of their
    places. Lists count by the set of their elements, so that a list that appends the same is the
    same; numbers inside lists belong to the contents.
    """

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self._items_left = STATE_ITEMS_MAX

    def describe(
        self, value: object, depth: int = STATE_DEPTH_MAX, *, in_list: bool = False
    ) -> str:
        self._items_left -= 1
        if self._items_left < 0 or depth == 0:
            return "…"
        if isinstance(value, str):
            return repr(_mask_noise(value) if len(value) <= MASKED_CHARS_MAX else value)
        if value is None or isinstance(value, bool):
            return repr(value)
        if isinstance(value, int | float):
            if in_list:
                return repr(value)
            self.numbers.append(value)
            return "number"
        if isinstance(value, list | tuple | set | frozenset):
            elements = cast("Iterable[object]", value)
            described = {self.describe(item, depth - 1, in_list=True) for item in elements}
            return f"[{', '.join(sorted(described))}]"
        return self._describe_fields(value, depth, in_list=in_list)

    def _describe_fields(self, value: object, depth: int, *, in_list: bool) -> str:
        fields = _fields_of(value)
        if fields is None:
            return _mask_noise(repr(value)[: 2 * COMPARED_CHARS])
        pairs = [
            f"{key!r}: {self.describe(fields[key], depth - 1, in_list=in_list)}"
            for key in sorted(fields, key=repr)
        ]
        return f"{type(value).__name__}{{{', '.join(pairs)}}}"


def _fields_of(value: object) -> Mapping[object, object] | None:
    """Return the entries of a mapping or the fields of a framework's object, if it has any."""
    if isinstance(value, (dict, Mapping)):
        return cast("Mapping[object, object]", value)
    if isinstance(value, msgspec.Struct):
        return cast("Mapping[object, object]", msgspec.structs.asdict(value))
    return getattr(value, "__dict__", None) or None


def _forget_oldest(entries: OrderedDict[str, Any]) -> None:
    if len(entries) > KEYS_KEPT:
        entries.popitem(last=False)
