"""Runs that happened: one function for each kind of history, all of them in `EVERY`."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.kernel.driven_run import (
    ANA,
    NOON,
    OLA,
    DrivenRun,
    Evidence,
    Outcome,
    Person,
    Usage,
    chain,
    edge,
    files,
    green,
    node,
    plan_of,
    red,
    team,
    workflow,
)

from handrail.guard import Guard
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent

BO = Person(name="bo", role="ceo")
CODING = team(
    {
        "planner": ["researcher", "coder"],
        "researcher": ["planner"],
        "coder": ["planner", "coder"],
    },
    terminator="planner",
)
REVIEWED = team(
    {"planner": ["invoice", "audit"], "invoice": ["review"], "audit": ["review"]},
    review={"after": ["invoice", "audit"], "back_to": "planner"},
)
ONCE = team(
    {"desk": ["memory"], "memory": ["desk"]},
    terminator="desk",
    agents={"memory": {"tasks": [{"id": "look", "once": True, "milestone": "checked"}]}},
)
BUG = workflow(
    node("start", "start"),
    node("triage"),
    node("fix", max_attempts=2),
    node("verify", kind="verification", role="qa-engineer", on_failure={"rework": "fix", "max": 1}),
    node("sign", "approval", revise_to="fix"),
    node("end", "end"),
    edges=[
        edge("start", "triage"),
        edge("triage", "fix"),
        edge("fix", "verify"),
        edge("verify", "sign"),
        edge("sign", "end"),
    ],
)
FORKED = workflow(
    node("start", "start"),
    node("fork", "decision", parallel=True),
    node("left"),
    node("ask", "approval"),
    node("join", "merge"),
    node("end", "end"),
    edges=[
        edge("start", "fork"),
        edge("fork", "left", "true"),
        edge("fork", "ask"),
        edge("left", "join"),
        edge("ask", "join"),
        edge("join", "end"),
    ],
)


def looping(times: int = 3) -> DrivenRun:
    """Planner and researcher hand over to each other until somebody stops them."""
    d = DrivenRun(CODING, title="Fix the build", description="It is red.\nSince noon.")
    for i in range(times):
        d.now += timedelta(seconds=5)
        seen = Evidence() if i else red()
        d.hand("researcher", "need more facts", evidence=seen, usage=Usage(tokens=10, cost=0.5))
        d.hand("planner", "here they are")
    return d


def redirected() -> DrivenRun:
    """The planner proposes the researcher again, and the coder gets the turn."""
    agents = [{**CODING["agents"][0], "when_exhausted": {"researcher": "coder"}}]
    rules = {"max_edge": 2, "repeat_limit": None}
    d = DrivenRun({**CODING, "agents": agents + CODING["agents"][1:], "stop_rules": rules})
    for _ in range(3):
        d.hand("researcher", "need more facts")
        d.hand("planner", "here they are")
    return d


def same_error() -> DrivenRun:
    d = DrivenRun(team({"coder": ["coder"]}, terminator="coder", stop_rules={"repeat_limit": None}))
    for _ in range(3):
        d.hand("coder", "again", evidence=red())
    return d


def half_done() -> DrivenRun:
    """The same error again and again, but the goal is green."""
    d = DrivenRun(
        team({"coder": ["coder"]}, terminator="coder", stop_rules={"repeat_limit": None}),
        context={"goal": {"command": "make"}},
    )
    for i in range(3):
        checks = (*green("make").checks, *red().checks) if i == 0 else red().checks
        d.hand("coder", "again", evidence=Evidence(checks=checks, measured=True))
    return d


def small_moves() -> DrivenRun:
    """Every place entered anew while it is on offer, asked or settled; closed while at work."""
    d = DrivenRun(chain(node("a"), node("sign", "approval"), node("b")))
    d.do(c.Move(by=ANA, step_id="a", reason="anew"))
    d.claim("a")
    d.do(c.Move(by=ANA, step_id="a", reason="anew"))
    d.succeed("a")
    d.do(c.Move(by=ANA, step_id="sign", reason="anew"))
    d.answer("go", decision="approve")
    d.claim("b")
    d.do(c.Pause(by=ANA, reason="wait"))
    d.fail("b")
    d.do(c.Move(by=ANA, step_id="b", reason="anew"))
    d.do(c.Resume(by=ANA, reason="go"))
    d.claim("b")
    d.do(c.Close(by=ANA, reason="enough"))
    return d


def dear_question() -> DrivenRun:
    """A question whose result spends the budget."""
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_tokens": 5}))
    d.report(outcome=Outcome.ASK, question="May I?", usage=Usage(tokens=6))
    return d


def terminated() -> DrivenRun:
    """Faults, a lost lease, a timeout, a question of an agent, then an end by the authority."""
    d = DrivenRun(CODING, title="Fix it")
    d.hand("nobody", "hello?")
    d.report(outcome=None, text="neither")
    d.hand("coder")
    d.do(c.Lose(fence=d.claim(), reason="no heartbeat"))
    d.do(c.Report(fence=d.claim(), agent="coder-1", malformed="not JSON"))
    d.report(outcome=Outcome.ASK, question="Which file?")
    d.now += timedelta(seconds=30)
    d.answer("a.py")
    d.hand("planner", "done", evidence=green(), text="patched")
    d.report(
        outcome=Outcome.TERMINATE, reason="all green", status="done_partial", remaining=("docs",)
    )
    return d


def timed_out() -> DrivenRun:
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_duration": None}))
    d.claim()
    d.advance(1800)
    d.advance(86_400)
    return d


def reviewed() -> DrivenRun:
    """Two rounds of review; the second question is asked again because the bead changed."""
    d = DrivenRun(REVIEWED, title="Pay invoice 7", description="by Friday")
    d.hand("invoice", "it is an invoice")
    d.hand("review", "paid 10", text="10 EUR\npaid")
    d.now += timedelta(seconds=60)
    d.answer("pay 20 instead", by=OLA)
    d.hand("audit", "an audit then")
    d.report(outcome=Outcome.TERMINATE, reason="audited 20")
    d.do(c.Patch(by=OLA, patch={"urgent": True}))
    return d


def approved() -> DrivenRun:
    d = reviewed()
    d.answer("OK", by=OLA)
    return d


def quorum(*answers: tuple[str, Person]) -> DrivenRun:
    document = {**REVIEWED, "review": {**REVIEWED["review"], "quorum": 2}}
    d = DrivenRun(document, title="Pay")
    d.hand("invoice")
    d.hand("review", "paid")
    for text, by in answers:
        d.answer(text, by=by)
    return d


def once_only() -> DrivenRun:
    d = DrivenRun(ONCE, title="Remember")
    d.hand("memory", "look it up")
    d.hand("desk", "nothing there", data={"phase_detail": "miss"})
    d.hand("memory", "look again")
    return d


def bug() -> DrivenRun:
    """Retries, rework, escalation, once more, approval, revision, and a good end."""
    d = DrivenRun(BUG, title="Crash", filed_by="ola")
    d.succeed("triage", reason="it is real")
    d.fail("fix", reason="no idea", evidence=red())
    d.succeed("fix", text="try this", evidence=files(a_py="1"))
    d.fail("verify", reason="still red")
    d.succeed("fix")
    d.fail("verify", reason="red again")
    d.now += timedelta(seconds=100)
    d.answer("once more", decision="revise")
    d.succeed("verify")
    d.answer("use a lock", decision="revise")
    d.succeed("fix", text="with a lock")
    d.succeed("verify", text="green")
    d.answer(decision="approve", text="fine")
    return d


def rejected() -> DrivenRun:
    d = DrivenRun(chain(node("a"), node("sign", "approval")))
    d.succeed("a")
    d.answer("too dear", decision="reject")
    return d


def forked() -> DrivenRun:
    """One branch waits for a person, the other one is there first."""
    d = DrivenRun(FORKED)
    d.succeed("left")
    d.answer(decision="approve")
    return d


def racing() -> DrivenRun:
    """Two branches at work; the first to arrive cancels nobody, since the merge waits for all."""
    document = workflow(
        node("start", "start"),
        node("fork", "decision", parallel=True),
        node("left"),
        node("right"),
        node("join", "merge"),
        node("end", "end"),
        edges=[
            edge("start", "fork"),
            edge("fork", "left", "true"),
            edge("fork", "right"),
            edge("left", "join"),
            edge("right", "join"),
            edge("join", "end"),
        ],
    )
    d = DrivenRun(document)
    d.claim("right")
    d.succeed("left")
    return d


def fork_moved() -> DrivenRun:
    d = DrivenRun(FORKED)
    d.claim("left")
    d.do(c.Move(by=ANA, step_id="left", reason="stuck"))
    return d


def overridden() -> DrivenRun:
    """Paused, resumed, pushed, moved, migrated, closed."""
    d = DrivenRun(chain(node("a"), node("sign", "approval"), node("b")), title="Do it")
    d.now += timedelta(seconds=10)
    d.do(c.Pause(by=ANA, reason="lunch"))
    d.now += timedelta(seconds=50)
    d.do(c.Resume(by=BO, reason="back"))
    d.now += timedelta(seconds=20)
    d.do(c.PushClocks(seconds=15))
    d.succeed("a")
    d.do(c.Pause(by=ANA, reason="dinner"))
    d.do(c.Resume(by=ANA, reason="back"))
    d.now += timedelta(seconds=5)
    d.do(c.Move(by=ANA, step_id="a", reason="once again"))
    d.claim("a")
    d.do(c.Move(by=ANA, step_id="b", reason="skip it"))
    d.now += timedelta(seconds=7)
    d.plan = plan_of(chain(node("a"), node("b"), node("z")))
    d.do(c.Migrate(by=ANA, definition_id="w", version=2, step_id="z", reason="new version"))
    d.do(c.Close(by=ANA, reason="no longer needed"))
    return d


def paused() -> DrivenRun:
    d = DrivenRun(chain(node("a")))
    d.do(c.Pause(by=ANA, reason="wait\nfor me"))
    return d


def pause_expired() -> DrivenRun:
    d = paused()
    d.advance(31 * 86_400)
    return d


def waiting_closed() -> DrivenRun:
    d = DrivenRun(chain(node("sign", "approval")))
    d.do(c.Close(by=ANA, reason="never mind"))
    return d


def unanswered() -> DrivenRun:
    d = DrivenRun(chain(node("sign", "approval")))
    d.advance(8 * 86_400)
    return d


def nobody_came() -> DrivenRun:
    """Nobody with the role, and a commit that waits for its lock until the clock runs out."""
    d = DrivenRun(chain(node("a"), node("c", kind="commit", role="engineering-manager")))
    d.now += timedelta(seconds=61)
    d.do(c.MissRole(fence=d.run.fence))
    d.answer("go on", decision="approve")
    d.advance(86_400)
    d.answer("try again", decision="revise")
    d.do(c.GrantLock(step_id="c", lock=4))
    d.fail("c", reason="conflict")
    d.advance(86_400)
    return d


def counted() -> DrivenRun:
    """A workflow whose rules count its transitions."""
    d = DrivenRun(chain(node("a"), node("b"), stop_rules={"max_handoffs": 2}))
    d.succeed("a", reason="done")
    d.succeed("b")
    return d


def guarded(*, end: bool = True, handoffs: int = 2) -> list[RunEvent]:
    """What the guard records, with its own clock."""
    now = [NOON]

    def clock():
        now[0] += timedelta(seconds=1)
        return now[0]

    guard = Guard(StopRules(max_edge=None), clock=clock)
    with guard.run("ticket 1", task="Fix it", raises=False) as run:
        for _ in range(handoffs):
            if run.stop is None:
                run.result("planner", text="plan", evidence=red())
                run.result("planner", usage={"tokens": 3}, milestone="planned")
                run.handoff("planner", "coder", reason="go")
            if run.stop is None:
                run.handoff("coder", "planner", reason="went")
        if not end:
            return list(run.events)
    return run.events


def guarded_briefly() -> list[RunEvent]:
    """Nothing but the start and the end."""
    return guarded(handoffs=0)


def guarded_refused() -> list[RunEvent]:
    """The one handoff too many is on record and was not made."""
    with Guard(StopRules(max_handoffs=1)).run("r", raises=False) as run:
        run.handoff("a", "b")
        run.handoff("b", "c", reason="one more")
    return run.events


def guarded_open() -> list[RunEvent]:
    return guarded(end=False)


def quorum_approved() -> DrivenRun:
    return quorum(("ok", ANA), ("looks good", BO))


def quorum_revised() -> DrivenRun:
    return quorum(("ok", ANA), ("make it 30", BO))


def quorum_open() -> DrivenRun:
    return quorum(("ok", ANA))


def started() -> DrivenRun:
    return DrivenRun(CODING)


def polled() -> DrivenRun:
    """Agents wait: a workflow goes on after one wait, and asks a person after two."""
    d = DrivenRun(
        chain(
            node("poll", max_waits=2, waits_within=60),
            node("test", on_failure={"rework": "poll", "max": 1}),
        )
    )
    d.report("poll", outcome=Outcome.WAITING, waits_for="CI", retry_after=10)
    d.advance(10)
    d.succeed("poll")
    d.fail("test")
    d.report("poll", outcome=Outcome.WAITING, waits_for="CI", retry_after=100)
    d.advance(60)
    d.answer("again", decision="revise")
    d.report("poll", outcome=Outcome.WAITING, waits_for="CI", retry_after=10)
    d.do(c.Move(by=ANA, step_id="poll", reason="CI is done"))
    d.report("poll", outcome=Outcome.WAITING, waits_for="CI", retry_after=10)
    d.do(c.Move(by=ANA, step_id="test", reason="CI is done"))
    d.succeed("test")
    return d


def waited() -> DrivenRun:
    """A team's agent waits past the deadline."""
    rules = {"max_waits": 3, "wait_deadline": 60, "max_duration": 600}
    d = DrivenRun(team({"a": []}, terminator="a", stop_rules=rules))
    for _ in range(2):
        d.report(outcome=Outcome.WAITING, waits_for="the deployment", retry_after=40)
        d.advance(40)
    return d


DRIVEN: tuple[Callable[[], DrivenRun], ...] = (
    looping, redirected, same_error, half_done, small_moves, dear_question, terminated,
    timed_out, reviewed, approved, quorum_approved, quorum_revised,
    quorum_open, once_only, bug, rejected, forked, racing, fork_moved, overridden, paused,
    pause_expired,
    waiting_closed, unanswered, nobody_came, counted, started, polled, waited,
)  # fmt: skip
GUARDED: tuple[Callable[[], list[RunEvent]], ...] = (
    guarded, guarded_briefly, guarded_open, guarded_refused,
)  # fmt: skip


def every() -> dict[str, Sequence[RunEvent]]:
    """Name -> events, of all histories."""
    driven = {make.__name__: make().events for make in DRIVEN}
    guarded = {make.__name__: make() for make in GUARDED}
    return {**driven, **guarded}
