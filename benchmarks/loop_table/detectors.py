"""Detectors of loops that others publish, each re-expressed from its documentation.

Not their code and not their words: the rule as they describe it, over the neutral steps of a trace.
A detector is asked after each step whether the run stops there; the next step is then not taken.
What a detector cannot see does not count: a call with unknown arguments is like no other, a result
that nobody recorded is like no other, and a failure that nobody knows of is none.

- OpenHands' StuckDetector: docs.openhands.dev/sdk/guides/agent-stuck-detector
- Gemini CLI's loop detection: google-gemini/gemini-cli, `loopDetectionService`
- CrewAI's repeated usage of a tool: crewAIInc/crewAI, pull request 25 and issue 518
- Strands' Swarm: strandsagents.com, "Swarm Multi-Agent Pattern", safety mechanisms
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from handrail.kernel.definition.limits import PROFILES, ProfileName
from handrail.kernel.stop.rules import RULE_ORDER
from handrail.replay.trace_judgement import TraceJudge
from handrail.replay.traces.model import TraceCall, TraceStep


class Detector(Protocol):
    """Watches one run. `rule` names what stopped it. A detector that also warns the agent counts
    that in `nudges`."""

    rule: str

    def step(self, step: TraceStep) -> bool:
        """Whether the run stops after this step."""
        ...


MakeDetector = Callable[[], Detector]


def request_of(call: TraceCall) -> Hashable:
    """What is equal for equal calls: the tool and its arguments, read as JSON where they are."""
    if call.arguments is None:
        return object()
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        arguments = call.arguments
    return call.tool, arguments


def all_equal(items: Sequence[Hashable]) -> bool:
    return all(item == items[0] for item in items)


class StepCap:
    """Stops after so many steps, as `max_turns` and `recursion_limit` of most frameworks do."""

    def __init__(self, steps: int) -> None:
        self.rule = f"{steps} steps"
        self._left = steps

    def step(self, step: TraceStep) -> bool:
        self._left -= 1
        return self._left <= 0


class SameCall:
    """Stops when one tool is called with the same arguments so many times in a row, whatever it
    answers. The rule that most people write first."""

    rule = "same call"

    def __init__(self, times: int = 3) -> None:
        self._last: deque[Hashable] = deque(maxlen=times)

    def step(self, step: TraceStep) -> bool:
        for call in step.calls:
            self._last.append(request_of(call))
            if len(self._last) == self._last.maxlen and all_equal(self._last):
                return True
        return False


class CrewAI:
    """Takes a call for a repetition when it is the same tool with the same arguments as the last
    call of that agent, at the second time. CrewAI then refuses the call and tells the agent to do
    something else; here the run stops."""

    rule = "repeated usage"

    def __init__(self) -> None:
        self._last: dict[str, Hashable] = {}

    def step(self, step: TraceStep) -> bool:
        for call in step.calls:
            request = request_of(call)
            if self._last.get(step.agent) == request:
                return True
            self._last[step.agent] = request
        return False


class _Event(NamedTuple):
    kind: str
    content: Hashable


class OpenHands:
    """Looks at what happened since the last word of a user, at most 20 events, and stops at:

    action and observation  the same action with the same observation, 4 times in a row
    action and error        the same action with an error each time, 3 times in a row
    monologue               3 messages of the agent in a row with nothing between them
    alternating             two actions with their observations in turn, 6 in a row

    An action is a call with the thought that came with it. The rule for errors of the context
    window has nothing to go by in these traces. `same_text` is the monologue of the older
    releases, which counts only messages that are the same. A message of another agent ends a
    monologue: to this agent that is somebody else's word.
    """

    EVENTS_MAX = 20

    def __init__(self, *, same_text: bool = False) -> None:
        self.rule = ""
        self._same_text = same_text
        self._events: deque[_Event] = deque(maxlen=self.EVENTS_MAX)

    def step(self, step: TraceStep) -> bool:
        if step.user_text:
            self._events.clear()
        for call in step.calls:
            result = object() if call.result is None else call.result
            self._events.append(_Event("action", (step.text, request_of(call))))
            self._events.append(_Event("error" if call.failed else "observation", result))
        if not step.calls:
            text = step.text if self._same_text else ""
            self._events.append(_Event("message", (step.agent, text)))
        self.rule = self._stuck()
        return bool(self.rule)

    def _stuck(self) -> str:
        actions = [event.content for event in self._events if event.kind == "action"]
        observations = [e for e in self._events if e.kind in ("observation", "error")]
        if len(actions) >= 4 and all_equal(actions[-4:]) and all_equal(observations[-4:]):
            return "action and observation"
        is_error = [event.kind == "error" for event in observations[-3:]]
        if len(actions) >= 3 and all_equal(actions[-3:]) and all(is_error):
            return "action and error"
        last = list(self._events)[-3:]
        if len(last) == 3 and last[0].kind == "message" and all_equal(last):
            return "monologue"
        if len(actions) >= 6 and _alternates(actions[-6:]) and _alternates(observations[-6:]):
            return "alternating"
        return ""


def _alternates(items: Sequence[Hashable]) -> bool:
    return all_equal(items[::2]) and all_equal(items[1::2])


class GeminiCLI:
    """Stops at the same tool call 5 times in a row, and at chanting: a piece of 50 characters of
    what the model says came 10 times, on average at most 250 characters apart, and what stands
    between is mostly the same. A tool call, a block of code, a table, a list, a heading, a
    quotation or a divider begins the text anew; inside a block of code nothing counts. A new prompt
    of a user begins everything anew. Without the check that asks a model.

    The program sees text as it streams in; a trace has it whole, so it is given line by line. It
    knows one agent; here the text of another agent begins the text anew, as a prompt does.
    """

    CALLS, CHUNK, TIMES, TEXT_MAX = 5, 50, 10, 5_000
    BREAK = re.compile(r"```|^\s*(?:\|.*\||[|+-]{3,}|[*+-]\s|\d+\.\s|#+\s|>\s)")
    DIVIDER = re.compile(r"\s*[-+*=_^~.\u2500-\u257f]*\s*")

    def __init__(self) -> None:
        self.rule = ""
        self._call: Hashable = None
        self._calls = 0
        self._is_code = False
        self._agent = ""
        self._forget_text()

    def _forget_text(self) -> None:
        self._text = ""
        self._read = 0
        self._places: dict[str, list[int]] = defaultdict(list)

    def step(self, step: TraceStep) -> bool:
        if step.user_text:
            self._call, self._calls = None, 0
        if step.user_text or step.agent != self._agent:
            self._agent, self._is_code = step.agent, False
            self._forget_text()
        if any(self._chants(line) for line in step.text.splitlines(keepends=True)):
            self.rule = "chanting"
        elif any(self._repeats(call) for call in step.calls):
            self.rule = "same call"
        return bool(self.rule)

    def _repeats(self, call: TraceCall) -> bool:
        self._forget_text()
        request = request_of(call)
        self._calls = self._calls + 1 if request == self._call else 1
        self._call = request
        return self._calls >= self.CALLS

    def _chants(self, line: str) -> bool:
        is_divider = self.DIVIDER.fullmatch(line) is not None
        if is_divider or self.BREAK.search(line):
            self._forget_text()
        was_code = self._is_code
        self._is_code ^= line.count("```") % 2 == 1
        if was_code or self._is_code or is_divider:
            return False
        self._text += line
        self._shorten()
        while self._read + self.CHUNK <= len(self._text):
            places = self._places[self._text[self._read : self._read + self.CHUNK]]
            places.append(self._read)
            self._read += 1
            if len(places) >= self.TIMES and self._is_chant(places[-self.TIMES :]):
                return True
        return False

    def _shorten(self) -> None:
        cut = len(self._text) - self.TEXT_MAX
        if cut <= 0:
            return
        self._text = self._text[cut:]
        self._read = max(0, self._read - cut)
        moved = {
            chunk: [place - cut for place in places if place >= cut]
            for chunk, places in self._places.items()
        }
        self._places = defaultdict(list, {chunk: at for chunk, at in moved.items() if at})

    def _is_chant(self, places: list[int]) -> bool:
        if places[-1] - places[0] > 5 * self.CHUNK * (self.TIMES - 1):
            return False
        between = {self._text[a:b] for a, b in pairwise(places)}
        return len(between) <= self.TIMES // 2


class StrandsSwarm:
    """Counts visits of agents; steps of one agent in a row are one visit. Stops when the last 8
    visits have fewer than 3 different agents, as the guide sets it (it is off by default), and, if
    `limits`, at 20 handoffs or visits, which are the defaults. Its timeouts need clocks. Of a
    single agent it sees one visit."""

    def __init__(self, *, window: int = 8, unique_min: int = 3, limits: bool = False) -> None:
        self.rule = ""
        self._unique_min = unique_min
        self._visits_max = 20 if limits else None
        self._last: deque[str] = deque(maxlen=window)
        self._visits = 0

    def step(self, step: TraceStep) -> bool:
        if not self._last or self._last[-1] != step.agent:
            self._last.append(step.agent)
            self._visits += 1
            if len(self._last) == self._last.maxlen and len(set(self._last)) < self._unique_min:
                self.rule = "repetitive handoffs"
            elif self._visits_max and self._visits >= self._visits_max:
                self.rule = "max handoffs"
        return bool(self.rule)


class Handrail:
    """Handrail's own rules under one of its profiles, as a guard asks them."""

    def __init__(self, profile: ProfileName = "observed") -> None:
        self.rule = ""
        self._judge = TraceJudge(PROFILES[profile])

    @property
    def nudges(self) -> int:
        return len(self._judge.nudges)

    def step(self, step: TraceStep) -> bool:
        fired = self._judge.judge(step)
        if fired:
            self.rule = min(fired, key=lambda rule: RULE_ORDER[rule.rule]).rule.value
        return bool(fired)


DETECTORS: dict[str, MakeDetector] = {
    "Handrail, observed": Handrail,
    "Handrail, conversation": lambda: Handrail("conversation"),
    "Handrail, strict": lambda: Handrail("strict"),
    "OpenHands": OpenHands,
    "OpenHands, same text": lambda: OpenHands(same_text=True),
    "Gemini CLI": GeminiCLI,
    "CrewAI": CrewAI,
    "Strands 8/3": StrandsSwarm,
    "Strands 8/3 and limits": lambda: StrandsSwarm(limits=True),
    "same call three times": SameCall,
    "cap of 25 steps": lambda: StepCap(25),
    "cap of 50 steps": lambda: StepCap(50),
    "cap of 100 steps": lambda: StepCap(100),
}
"""By the name in the table."""
