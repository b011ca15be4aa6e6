"""The world around a simulated run: workers with leases, people, the commit lock, the clock.

Each action is a method that looks at the run and makes up a command, good or bad, or None if there
is nothing to do it with. All chance comes from one generator, so a seed is a history.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from handrail.kernel.definition import REVIEW_SEAT
from handrail.kernel.plan import Plan
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run import machine
from handrail.kernel.run.effects import FreeLock, RunEffect, SeekLock
from handrail.kernel.run.state import Person, Phase, Question, Run, Token
from handrail.testing.clock import ManualClock
from handrail.testing.options import FAULTS, PEOPLE, WORK, Options
from handrail.testing.scripted import shortest_ways

BOSSES = tuple(Person(name=name, role="ceo") for name in ("ana", "bob", "cyd"))
ADMIN = Person(name="dee", role="admin")
AUTHOR = Person(name="ola", role="operator")
GUEST = Person(name="vic", role="viewer")
EVERYBODY = (*BOSSES, ADMIN, AUTHOR, GUEST)
WORKERS = tuple(f"worker {i}" for i in range(1, 5))
UNCLEAR = ("no", "hm", "", "ok?", "wait", "ОК", "...", "ok " * 600)
CLEAR = ("ok", "looks good to me", "approved, thanks", "👍")
CHANGES = ("ok, but change the date", "use euros", "once more, with feeling", "x" * 5_000)
KEPT = 8
"""How many old reports and questions the world remembers, to send them again."""


class World:
    def __init__(self, options: Options, plan: Plan, rng: Random) -> None:
        self.options, self.plan, self.rng = options, plan, rng
        self.clock = ManualClock()
        self.sent: list[c.Report] = []
        self.asked: list[Question] = []
        self.seeking: set[str] = set()
        self.revisions = 0
        self.way = shortest_ways(plan) if plan.kind == "team" else {}
        self.places = tuple(plan.agents) or tuple(node.id for node in plan.graph.nodes)
        self._actions = tuple(options.weights)
        self._weights = tuple(options.weights.values())

    def start(self) -> c.Start:
        review = self.options.review
        if self.plan.kind == "team" and self.plan.team.review is None and review == "required":
            review = None
        return c.Start(
            run_id="run",
            bead_id="bead",
            title="fix src/b.py",
            filed_by=AUTHOR.name,
            context=self.options.context,
            review=review,
            paths=self.options.paths,
            from_place=self.options.from_place,
        )

    def heard(self, effects: tuple[RunEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, SeekLock):
                self.seeking.add(effect.place)
            elif isinstance(effect, FreeLock):
                self.seeking.discard(effect.place)

    def next_command(self, run: Run) -> c.RunCommand:
        (action,) = self.rng.choices(self._actions, self._weights)
        for question in run.questions.values():
            if question not in self.asked:
                self.asked = [*self.asked[-KEPT:], question]
        return ACTIONS[action](self, run) or c.Tick()

    def pass_time(self, run: Run) -> None:
        rng = self.rng
        if rng.random() < self.options.hurry:
            due = machine.next_due(self.plan, run)
            if due is not None:
                self.clock.until(due + timedelta(seconds=rng.choice((-1, 0, 0, 0.5, 90_000))))
            return
        if rng.random() < 0.5:
            self.clock.advance(rng.random() * 2 * self.options.pace)

    # Agents

    def _token(self, run: Run, *phases: Phase) -> Token | None:
        found = [token for token in run.tokens.values() if token.phase in phases]
        return self.rng.choice(found) if found else None

    def claim(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.OFFERED)
        if token is None:
            return None
        return c.Claim(fence=token.fence, agent=self.rng.choice(WORKERS), roles=(token.role,))

    def claim_without_role(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.OFFERED)
        return token and c.Claim(fence=token.fence, agent=WORKERS[0], roles=("cook", ""))

    def claim_nothing(self, run: Run) -> c.RunCommand:
        token = self._token(run, Phase.CLAIMED)
        fence = token.fence if token is not None else run.fence + self.rng.choice((-1, 1))
        roles = tuple({t.role for t in run.tokens.values()})
        return c.Claim(fence=fence, agent=WORKERS[1], roles=roles)

    def report(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.CLAIMED)
        if token is None:
            return None
        character = self.options.characters[token.place]
        if character == "sleeping":
            return None
        if character == "crashing":
            return c.Lose(fence=token.fence, reason="the lease ran out")
        if character == "malformed" or (character == "erratic" and self.rng.random() < 0.2):
            report = c.Report(
                fence=token.fence, agent=token.agent, malformed="{" * 3, result=self._huge()
            )
        else:
            result = self._result(token, character)
            report = c.Report(fence=token.fence, agent=token.agent, result=result)
        self.sent = [*self.sent[-KEPT:], report]
        return report

    def report_again(self, run: Run) -> c.RunCommand | None:
        """Twice, or late: after a crash, a timeout, a rework, with a fence of long ago."""
        return self.rng.choice(self.sent) if self.sent else None

    def report_for_another(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.CLAIMED)
        return token and c.Report(
            fence=token.fence, agent="a stranger", result=self._result(token, "lying")
        )

    def report_unclaimed(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.OFFERED)
        return token and c.Report(
            fence=token.fence, agent=WORKERS[0], result=self._result(token, "diligent")
        )

    def lose(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.CLAIMED)
        if token is None:
            return None
        late = c.Report(
            fence=token.fence, agent=token.agent, result=self._result(token, "diligent")
        )
        self.sent = [*self.sent[-KEPT:], late]
        return c.Lose(fence=token.fence, reason="the worker is gone")

    def lose_nothing(self, run: Run) -> c.RunCommand:
        token = self._token(run, Phase.OFFERED, Phase.READY)
        return c.Lose(fence=token.fence if token is not None else run.fence + 1, reason="gone")

    def miss_role(self, run: Run) -> c.RunCommand | None:
        token = self._token(run, Phase.OFFERED)
        return token and c.MissRole(fence=token.fence)

    def best(self, token: Token) -> Result:
        """What somebody says who wants the run to end well."""
        if self.plan.kind == "team":
            return self.way.get(token.place, Result(outcome=Outcome.TERMINATE))
        return Result(outcome=Outcome.SUCCESS)

    def workers(self) -> list[str]:
        """All of them, in any order: who committed may not verify."""
        return self.rng.sample(WORKERS, len(WORKERS))

    def _result(self, token: Token, character: str) -> Result:
        result = self._in_team if self.plan.kind == "team" else self._in_workflow
        made = result(token, character)
        return self._dressed(made)

    def _in_workflow(self, token: Token, character: str) -> Result:
        rng = self.rng
        node = self.plan.node(token.place)
        weights = OUTCOMES[character]
        (outcome,) = rng.choices(tuple(weights), tuple(weights.values()))
        if outcome is Outcome.CONTINUE and not node.config.multi_dispatch and character != "lying":
            outcome = Outcome.FAILURE
        return Result(outcome=outcome, reason="so it is", question="which one?", to="nobody")

    def _in_team(self, token: Token, character: str) -> Result:
        rng, agent = self.rng, self.plan.agents[token.place]
        hands = agent.hands_off_to
        finish = self.way.get(token.place, Result(outcome=Outcome.TERMINATE))
        if character == "endless":
            to = hands[0] if hands else agent.id
            return Result(outcome=Outcome.HANDOFF, to=to, reason="again")
        if character == "diligent" and rng.random() < self.options.eager:
            return finish
        if character in ("diligent", "erratic") and hands and rng.random() < 0.9:
            return Result(outcome=Outcome.HANDOFF, to=rng.choice(hands), reason="your turn")
        if character == "diligent":
            return finish
        if character == "failing":
            return Result(outcome=Outcome.FAILURE, reason="I cannot")
        if character == "asking" and rng.random() < 0.8:
            return Result(outcome=Outcome.ASK, question=rng.choice(("which?", " ")))
        return self._lie(finish)

    def _lie(self, finish: Result) -> Result:
        """What an agent may not say, or says without its being so."""
        rng = self.rng
        return rng.choice(
            (
                finish,
                Result(),
                Result(outcome=Outcome.TERMINATE, reason="I say so"),
                Result(outcome=Outcome.TERMINATE, status="done_partial"),
                Result(outcome=Outcome.HANDOFF, to=""),
                Result(outcome=Outcome.HANDOFF, to="x" * 1_000),
                Result(outcome=Outcome.HANDOFF, to=REVIEW_SEAT),
                Result(outcome=Outcome.HANDOFF, to=rng.choice(self.places), task="none such"),
                Result(outcome=Outcome.HANDOFF, to=rng.choice(self.places), marker="A1_DONE"),
                Result(outcome=Outcome.SUCCESS, text="TERMINATE_WORKFLOW", marker="TERMINATE"),
            )
        )

    def _dressed(self, result: Result) -> Result:
        """With text, data, evidence and usage."""
        rng = self.rng
        data: dict[str, Any] = {}
        if rng.random() < 0.4:
            data = {
                f"k{rng.randint(1, 8)}": rng.choice((0, 1, None)),
                "severity": rng.randint(0, 5),
            }
        if rng.random() < 0.05:
            data |= {"redispatch_requested": "forged", "phase_detail": "hit", "task_scope": "large"}
        usage = self.options.usage
        return Result(
            outcome=result.outcome,
            to=result.to,
            reason=result.reason,
            task=result.task,
            status=result.status,
            question=result.question,
            marker=result.marker or self._marker(),
            text="done\n" if rng.random() < 0.98 else "y" * 20_000,
            data=data,
            evidence=self._evidence(),
            usage=Usage(tokens=rng.randint(0, usage), cost=usage * rng.random() / 100),
        )

    def _marker(self) -> str:
        """An agent's marker, sometimes; whose it is nobody asks here."""
        if not self.plan.agents or self.rng.random() < 0.5:
            return ""
        return self.plan.agents[self.rng.choice(self.places)].marker

    def _huge(self) -> Result:
        return Result(text="{" * 10_000, usage=Usage(tokens=self.options.usage))

    def _evidence(self) -> Evidence:
        rng, kind = self.rng, self.options.evidence
        if kind == "mixed":
            kind = rng.choice(
                ("none", "red", "idle", "flip", "fresh", "score", "forbidden", "green")
            )
        return EVIDENCE[kind](rng, rng.random() < self.options.measured)

    # The lock, the clock, the system

    def tick(self, run: Run) -> c.RunCommand:
        return c.Tick()

    def grant(self, run: Run) -> c.RunCommand | None:
        if not self.seeking:
            return None
        return c.GrantLock(place=self.rng.choice(sorted(self.seeking)), lock=run.fence + 1)

    def grant_wrong(self, run: Run) -> c.RunCommand:
        return c.GrantLock(place=self.rng.choice((*self.places, "nowhere")), lock=0)

    def push_clocks(self, run: Run) -> c.RunCommand:
        return c.PushClocks(seconds=self.rng.choice((1, 600, 86_400, 0, -5, 1e30, 0.0000001)))

    def start_again(self, run: Run) -> c.RunCommand:
        return self.start()

    # People

    def _question(self, run: Run) -> Question | None:
        return self.rng.choice(list(run.questions.values())) if run.questions else None

    def may_raise(self) -> bool:
        return self.revisions < self.options.revisions

    def answer(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        if question is None:
            return None
        by = self.rng.choice((*BOSSES, ADMIN))
        text = "this one" if question.own else self.rng.choice(CLEAR)
        return c.Answer(question_id=question.id, by=by, text=text, digest=question.digest)

    def answer_many(self, run: Run) -> c.RunCommand | None:
        """Anybody, anything that cannot raise."""
        question = self._question(run)
        return question and c.Answer(
            question_id=question.id,
            by=self.rng.choice(EVERYBODY),
            decision="approve",
            text=self.rng.choice(("", "yes")),
        )

    def answer_again(self, run: Run) -> c.RunCommand | None:
        if not self.asked:
            return None
        question = self.rng.choice(self.asked)
        return c.Answer(question_id=question.id, by=BOSSES[0], text="ok", digest=question.digest)

    def answer_stale(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        return question and c.Answer(
            question_id=question.id, by=BOSSES[0], decision="approve", digest="0" * 64
        )

    def answer_unclear(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        if question is None or question.own:
            return None
        text = self.rng.choice(UNCLEAR)
        return c.Answer(question_id=question.id, by=self.rng.choice(BOSSES), text=text)

    def answer_without_right(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        by = self.rng.choice((GUEST, AUTHOR, Person(name="worker 1", role="viewer")))
        return question and c.Answer(question_id=question.id, by=by, decision="approve")

    def revise(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        if question is None or not self.may_raise():
            return None
        text = self.rng.choice(CHANGES)
        decision = self.rng.choice((None, "revise"))
        return c.Answer(question_id=question.id, by=BOSSES[1], text=text, decision=decision)

    def reject(self, run: Run) -> c.RunCommand | None:
        question = self._question(run)
        return question and c.Answer(question_id=question.id, by=BOSSES[2], decision="reject")

    def _somewhere(self) -> str:
        return self.rng.choice((*self.places, *self.places, "nowhere"))

    def move(self, run: Run) -> c.RunCommand | None:
        if not self.may_raise():
            return None
        reason = self.rng.choice(("go there", "go there", " "))
        return c.Move(by=self.rng.choice((*BOSSES, ADMIN)), place=self._somewhere(), reason=reason)

    def migrate(self, run: Run) -> c.RunCommand | None:
        if not self.may_raise():
            return None
        return c.Migrate(
            by=ADMIN,
            definition_id=run.definition_id,
            version=run.version + 1,
            place=self._somewhere(),
            reason="a newer version",
        )

    def pause(self, run: Run) -> c.RunCommand:
        return c.Pause(by=BOSSES[0], reason="lunch")

    def resume(self, run: Run) -> c.RunCommand:
        return c.Resume(by=BOSSES[0], reason="back")

    def patch(self, run: Run) -> c.RunCommand:
        key = self.rng.choice((*(f"k{i}" for i in range(1, 9)), "severity", "task_scope", "goal"))
        value = self.rng.choice((0, 1, 2, None, "large", {"command": "pytest"}))
        return c.Patch(by=self.rng.choice((AUTHOR, BOSSES[0])), patch={key: value})

    def close(self, run: Run) -> c.RunCommand:
        by, reason = self.rng.choice(((BOSSES[0], "enough"), (AUTHOR, "never mind"), (ADMIN, "")))
        return c.Close(by=by, reason=reason)

    def override_without_right(self, run: Run) -> c.RunCommand:
        by = self.rng.choice((GUEST, Person(name="mallory", role="operator")))
        place = self.rng.choice(self.places)
        return self.rng.choice(
            (
                c.Move(by=by, place=place, reason="I want to"),
                c.Close(by=by, reason="I want to"),
                c.Pause(by=by, reason="I want to"),
                c.Resume(by=by, reason="I want to"),
                c.Patch(by=GUEST, patch={"severity": 9}),
                c.Migrate(by=by, definition_id="d", version=9, place=place, reason="mine"),
            )
        )


Action = Callable[[World, Run], c.RunCommand | None]
ACTIONS: dict[str, Action] = {name: getattr(World, name) for name in (*WORK, *FAULTS, *PEOPLE)}
OUTCOMES: dict[str, dict[Outcome | None, int]] = {
    "diligent": {Outcome.SUCCESS: 6, Outcome.FAILURE: 3, Outcome.ASK: 1},
    "failing": {Outcome.FAILURE: 3, Outcome.SUCCESS: 1},
    "endless": {Outcome.CONTINUE: 9, Outcome.SUCCESS: 1},
    "asking": {Outcome.ASK: 4, Outcome.SUCCESS: 1},
    "erratic": {Outcome.SUCCESS: 1, Outcome.FAILURE: 1, Outcome.CONTINUE: 1, Outcome.ASK: 1},
    "lying": {None: 1, Outcome.TERMINATE: 1, Outcome.CONTINUE: 1, Outcome.SUCCESS: 2},
}


def _red(rng: Random, measured: bool) -> Evidence:
    stderr = f"AssertionError: boom at 0x{rng.randrange(1 << 30):x}"
    check = Check(command="pytest", exit_code=1, stderr=stderr)
    return Evidence(checks=(check,), measured=measured)


EVIDENCE: dict[str, Callable[[Random, bool], Evidence]] = {
    "none": lambda _, measured: Evidence(measured=measured),
    "red": _red,
    "green": lambda _, measured: Evidence(
        checks=(Check(command="pytest", exit_code=0),), failures=(), measured=measured
    ),
    "idle": lambda _, measured: Evidence(files={}, measured=measured),
    "flip": lambda rng, measured: Evidence(files={"src/a.py": rng.choice("ab")}, measured=measured),
    "fresh": lambda rng, measured: Evidence(
        files={rng.choice(("src/a.py", "new.py")): f"{rng.random()}"},
        ticket_state=rng.choice(("open", "shut", None)),
        failures=tuple("abc"[: rng.randint(0, 3)]),
        measured=measured,
    ),
    "score": lambda rng, measured: Evidence(score=rng.random() / 2, measured=measured),
    "forbidden": lambda rng, measured: Evidence(
        files={"secrets/key": "1"} if rng.random() < 0.5 else None,
        checks=(Check(command="ls; rm -rf .", exit_code=0),),
        measured=measured,
    ),
}
