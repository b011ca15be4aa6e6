"""Good runs as data: plays them, and writes each to `tests/corpus/runs/NAME.json`.

    python -m tests.corpus.record

Every run here makes its way to a good end, by steps that a hasty rule could take for a loop: the
same handoffs again and again with a little progress each time, a test that is red for a while, a
poll that has to wait. None of their definitions sets a stop rule, so the defaults apply.
`tests/scenarios/test_good_runs.py` replays them.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from tests.kernel.driven_run import chain, edge, node, plan_of, team, workflow

from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide_and_apply
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.state import Person, Position, PositionPhase, Run
from handrail.kernel.run.workflow import ADVANCEABLE_PHASES

FOLDER = Path(__file__).parent / "runs"
COMMANDS_MAX = 1_000
BOSS = Person(name="ana", role="ceo")
FILES = ("src/app.py", "src/api.py", "tests/test_app.py")
Script = Iterator[Result]
Scripts = dict[str, list[Result]]


class Good(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its definition, what its agents answer in turn, what people say in turn."""

    about: str
    definition: dict[str, Any]
    scripts: Scripts
    people: list[str] = []
    seconds: float = 10
    """How long an agent works on a step."""
    lose: tuple[int, ...] = ()
    """Fences of dispatches whose workers are lost."""
    context: dict[str, Any] = {}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """As it is stored."""

    about: str
    definition: dict[str, Any]
    events: list[RunEvent]


def record(good: Good) -> Recorded:
    """Play it to its end."""
    player = _Player(good)
    for _ in range(COMMANDS_MAX):
        if player.run.has_ended:
            return Recorded(about=good.about, definition=good.definition, events=player.events)
        player.go_on()
    raise AssertionError(f"does not end: {good.about}")


class _Player:
    def __init__(self, good: Good) -> None:
        self.good, self.plan = good, plan_of(good.definition)
        self.now = datetime(2026, 3, 2, 9, tzinfo=UTC)
        self.events: list[RunEvent] = []
        self.scripts = {place: iter(script) for place, script in good.scripts.items()}
        self.people = iter(good.people)
        self._run: Run | None = None
        start = {"title": good.about, "context": good.context, "paths": FILES}
        self.do(c.Start(run_id="run", bead_id="bead", **start))

    @property
    def run(self) -> Run:
        assert self._run is not None
        return self._run

    def do(self, command: c.RunCommand) -> None:
        decision, self._run = decide_and_apply(self.plan, self._run, command, self.now)
        assert decision.refusal is None, decision.refusal
        self.events += decision.events

    def go_on(self) -> None:
        """One thing that somebody can do now."""
        for token in self.run.positions.values():
            if token.phase is PositionPhase.CLAIMED:
                self._report(token)
                return
            if token.phase is PositionPhase.OFFERED:
                agent = f"{token.step_id}-{1 + token.attempts % 2}"
                self.do(c.Claim(fence=token.fence, agent=agent, roles=(token.role,)))
                return
            if token.phase in ADVANCEABLE_PHASES:
                self.do(c.GrantLock(step_id=token.step_id, lock=self.run.fence + 1))
                return
        question = next(iter(self.run.pending_approvals.values()))
        self.now += timedelta(hours=1)
        self.do(c.Answer(approval_id=question.id, by=BOSS, text=next(self.people)))

    def _report(self, token: Position) -> None:
        self.now += timedelta(seconds=self.good.seconds)
        if token.fence in self.good.lose:
            self.do(c.Lose(fence=token.fence, reason="the worker restarted"))
            return
        result = next(self.scripts[token.step_id])
        self.do(c.Report(fence=token.fence, agent=token.agent, result=result))


# What agents answer


def hand(to: str, reason: str = "go on", **rest: Any) -> Result:
    return Result(outcome=Outcome.HANDOFF, to=to, reason=reason, usage=Usage(tokens=500), **rest)


def end(reason: str = "all done") -> Result:
    return Result(outcome=Outcome.TERMINATE, reason=reason)


def done(**rest: Any) -> Result:
    return Result(outcome=Outcome.SUCCESS, text="done", usage=Usage(tokens=500), **rest)


def failed(**rest: Any) -> Result:
    return Result(outcome=Outcome.FAILURE, reason="not yet", usage=Usage(tokens=500), **rest)


def more(**rest: Any) -> Result:
    return Result(outcome=Outcome.CONTINUE, text="looking", usage=Usage(tokens=500), **rest)


def saw(**rest: Any) -> dict[str, Any]:
    return {"evidence": Evidence(measured=True, **rest)}


def changed(version: int, path: str = FILES[0]) -> dict[str, Any]:
    return saw(files={path: f"{version:064x}"})


def ran(code: int, stderr: str = "", command: str = "pytest -q", **rest: Any) -> dict[str, Any]:
    return saw(checks=(Check(command=command, exit_code=code, stderr=stderr),), **rest)


# Teams

PAIR = team({"planner": ["worker"], "worker": ["planner"]}, terminator="planner")
CREW = team(
    {
        "planner": ["researcher", "coder", "verifier"],
        "researcher": ["planner"],
        "coder": ["planner"],
        "verifier": ["planner"],
    },
    terminator="planner",
)


def rounds(about: str, *results: dict[str, Any], **rest: Any) -> Good:
    """The planner sends the worker out once for each result."""
    planner = [*[hand("worker", f"part {i}") for i in range(1, len(results) + 1)], end()]
    worker = [hand("planner", f"part {i} is done", **one) for i, one in enumerate(results, 1)]
    scripts = {"planner": planner, "worker": worker}
    return Good(about=about, definition=PAIR, scripts=scripts, **rest)


def refactoring(steps: int) -> Good:
    parts = [changed(i, FILES[i % 3]) for i in range(steps)]
    return rounds(f"a refactoring in {steps} small steps", *parts)


def polling(*states: str) -> Good:
    found = [saw(ticket_state=state) for state in states]
    return rounds(f"a deployment polled {len(states)} times", *found, seconds=30)


def research(*scores: float) -> Good:
    return rounds(f"research that improves {len(scores)} times", *[saw(score=s) for s in scores])


def shrinking(failures: int) -> Good:
    """Fewer tests fail each time, with another error on top."""
    found = [
        ran(1 if left else 0, f"AssertionError: case {'abcdefghij'[left]} fails" if left else "",
            failures=tuple(f"t{n}" for n in range(left)))
        for left in range(failures, -1, -1)
    ]  # fmt: skip
    return rounds(f"{failures} failing tests, one less each time", *found)


def growing(tests: int) -> Good:
    """New tests are added and made green, one after the other."""
    found: list[dict[str, Any]] = []
    for n in range(1, tests + 1):
        command = f"pytest -q -k case_{'abcdefgh'[n]}"
        found += [ran(1, f"NameError: name 'case_{'abcdefgh'[n]}' is not defined", command)]
        found += [ran(0, "", command)]
    return rounds(f"a test suite that grows by {tests} tests", *found)


def flaky(reds: int) -> Good:
    """The same test fails a few times for no reason, then it is green."""
    found = [*[ran(1, "TimeoutError: no answer within 5 s")] * reds, ran(0)]
    scripts = {
        "planner": [hand("coder"), *[hand("verifier")] * len(found), end()],
        "coder": [hand("planner", **changed(1))],
        "verifier": [hand("planner", **one) for one in found],
    }
    return Good(about=f"a flaky test, red {reds} times", definition=CREW, scripts=scripts)


def hub(spokes: int, times: int = 1, **rest: Any) -> Good:
    names = [f"spoke-{i}" for i in range(1, spokes + 1)]
    definition = team(
        {"hub": names, **{name: ["hub"] for name in names}}, start="hub", terminator="hub"
    )
    scripts = {name: [hand("hub", **one) for one in rest.get(name, [{}] * times)] for name in names}
    scripts["hub"] = [*[hand(name) for _ in range(times) for name in names], end()]
    about = f"a hub with {spokes} spokes, {times} times round"
    return Good(about=about, definition=definition, scripts=scripts)


def coding() -> Good:
    """Research, a change, a red check, another change, green."""
    planner = ["researcher", "coder", "verifier", "coder", "verifier", "coder", "verifier"]
    red = [ran(1, "AssertionError: 3 != 4"), ran(1, "KeyError: 'total'")]
    return Good(
        about="a bug found, fixed badly, fixed better, fixed",
        definition=CREW,
        scripts={
            "planner": [*[hand(name) for name in planner], end("green")],
            "researcher": [hand("planner", **saw(score=0.9))],
            "coder": [hand("planner", **changed(i)) for i in range(3)],
            "verifier": [hand("planner", **one) for one in [*red, ran(0)]],
        },
    )


def relay(agents: int) -> Good:
    """Each hands on to the next; the last one ends it."""
    names = [f"station-{i}" for i in range(1, agents + 1)]
    ways = {a: [b] for a, b in pairwise(names)} | {names[-1]: []}
    definition = team(ways, terminator=names[-1])
    scripts = {a: [hand(to[0])] if to else [end()] for a, to in ways.items()}
    return Good(about=f"a relay of {agents} agents", definition=definition, scripts=scripts)


def milestones(count: int) -> Good:
    tasks = [{"id": f"m{i}", "milestone": f"phase {i}", "once": True} for i in range(count)]
    definition = team(
        {"lead": ["maker"], "maker": ["lead"]}, terminator="lead",
        agents={"maker": {"tasks": tasks}},
    )  # fmt: skip
    lead = [*[hand("maker", task=f"m{i}") for i in range(count)], end()]
    scripts = {"lead": lead, "maker": [hand("lead")] * count}
    return Good(about=f"{count} milestones", definition=definition, scripts=scripts)


def reviewed(revisions: int) -> Good:
    """A person sends the result back a few times, then approves."""
    definition = team(
        {"writer": ["editor"], "editor": ["review"]},
        review={"after": ["editor"], "back_to": "writer"},
    )
    people = [*[f"shorten part {i}" for i in range(1, revisions + 1)], "ok"]
    scripts = {
        "writer": [hand("editor")] * (revisions + 1),
        "editor": [hand("review", text="a draft")] * (revisions + 1),
    }
    about = f"a text revised {revisions} times"
    return Good(about=about, definition=definition, scripts=scripts, people=people)


def slow() -> Good:
    """Nine minutes of work: within the ten that a team has."""
    return rounds("long work", *[changed(i) for i in range(4)], seconds=60)


def clumsy() -> Good:
    """Answers that cannot be used, and a lost worker, now and then."""
    astray = Result(outcome=Outcome.HANDOFF, to="nobody")
    worker = [Result(text="I am on it"), hand("planner", **changed(1))]
    worker += [astray, hand("planner", **changed(2))]
    planner = [hand("worker"), hand("worker"), end()]
    scripts = {"planner": planner, "worker": worker}
    return Good(about="clumsy answers", definition=PAIR, scripts=scripts, lose=(2,))


def asking() -> Good:
    worker = [Result(outcome=Outcome.ASK, question="Which invoice?"), hand("planner", **changed(1))]
    scripts = {"planner": [hand("worker"), end()], "worker": worker}
    about = "an agent that asks a person"
    return Good(about=about, definition=PAIR, scripts=scripts, people=["number 7"])


# Workflows

REWORK = {"rework": "apply", "max": 3}
FIX = chain(
    node("apply"), node("verify", kind="verification", role="qa-engineer", on_failure=REWORK)
)


def fixing(reds: int) -> Good:
    """Applied and sent back, each time with another error, then green."""
    errors = ["AssertionError: 3 != 4", "KeyError: 'total'", "ValueError: no date"][:reds]
    verify = [*[failed(**ran(1, error)) for error in errors], done(**ran(0))]
    scripts = {"apply": [done(**changed(i)) for i in range(reds + 1)], "verify": verify}
    return Good(about=f"a fix sent back {reds} times", definition=FIX, scripts=scripts)


def investigation(turns: int) -> Good:
    definition = chain(node("look", multi_dispatch=True, kind="investigation", max_attempts=12))
    found = [more(**saw(score=0.1 * i)) for i in range(1, turns)]
    scripts = {"look": [*found, done(**saw(score=0.1 * turns))]}
    about = f"an investigation of {turns} dispatches"
    return Good(about=about, definition=definition, scripts=scripts)


def parallel(branches: int) -> Good:
    names = [f"part-{i}" for i in range(1, branches + 1)]
    forks = [edge("fork", name, "" if name == names[-1] else "true") for name in names]
    definition = workflow(
        node("start", "start"), node("fork", "decision", parallel=True),
        *[node(name) for name in names], node("join", "merge"), node("check"), node("end", "end"),
        edges=[edge("start", "fork"), *forks, *[edge(name, "join") for name in names],
               edge("join", "check"), edge("check", "end")],
    )  # fmt: skip
    scripts = {name: [done(**changed(1, f"src/{name}.py"))] for name in names}
    scripts["check"] = [done(**ran(0))]
    return Good(about=f"{branches} branches", definition=definition, scripts=scripts)


def retried() -> Good:
    scripts = {"a": [failed(), failed(), done()], "b": [failed(), done()]}
    return Good(about="work retried", definition=chain(node("a"), node("b")), scripts=scripts)


def escalated() -> Good:
    scripts = {"a": [failed()] * 3, "b": [done()]}
    definition = chain(node("a"), node("b"))
    return Good(
        about="an escalation approved", definition=definition, scripts=scripts, people=["ok"]
    )


def signed() -> Good:
    definition = chain(
        node("draft"), node("sign", "approval", revise_to="draft"),
        node("commit", kind="commit", role="engineering-manager"),
    )  # fmt: skip
    scripts = {"draft": [done(**changed(i)) for i in range(3)], "commit": [done()]}
    people = ["name the author", "and the date", "ok"]
    return Good(about="a draft signed", definition=definition, scripts=scripts, people=people)


GOOD: dict[str, Callable[[], Good]] = {
    "refactoring-4": lambda: refactoring(4),
    "refactoring-7": lambda: refactoring(7),
    "refactoring-10": lambda: refactoring(10),
    "polling-5": lambda: polling("queued", "building", "testing", "deploying", "live"),
    "polling-9": lambda: polling(*(f"{10 * n}% rolled out" for n in range(2, 11))),
    "research-6": lambda: research(0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "research-8": lambda: research(0.1, 0.16, 0.22, 0.28, 0.34, 0.4, 0.46, 0.52),
    "shrinking-4": lambda: shrinking(4),
    "shrinking-9": lambda: shrinking(9),
    "growing-3": lambda: growing(3),
    "growing-5": lambda: growing(5),
    "flaky-1": lambda: flaky(1),
    "flaky-2": lambda: flaky(2),
    "hub-6": lambda: hub(6),
    "hub-4-twice": lambda: hub(4, 2),
    "hub-10": lambda: hub(10),
    "coding": coding,
    "relay-5": lambda: relay(5),
    "relay-15": lambda: relay(15),
    "milestones-3": lambda: milestones(3),
    "milestones-8": lambda: milestones(8),
    "reviewed-1": lambda: reviewed(1),
    "reviewed-5": lambda: reviewed(5),
    "slow": slow,
    "clumsy": clumsy,
    "asking": asking,
    "fixing-0": lambda: fixing(0),
    "fixing-3": lambda: fixing(3),
    "investigation-4": lambda: investigation(4),
    "investigation-9": lambda: investigation(9),
    "parallel-2": lambda: parallel(2),
    "parallel-6": lambda: parallel(6),
    "retried": retried,
    "escalated": escalated,
    "signed": signed,
}


def written(recorded: Recorded) -> str:
    """One line for the definition, one for each event."""
    head = msgspec.json.encode({"about": recorded.about, "definition": recorded.definition})
    events = [msgspec.json.encode(event).decode() for event in recorded.events]
    return f'{head.decode()[:-1]},"events":[\n' + ",\n".join(events) + "\n]}\n"


def read(name: str) -> Recorded:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Recorded)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in GOOD.items():
        (FOLDER / f"{name}.json").write_text(written(record(make())))


if __name__ == "__main__":
    main()
