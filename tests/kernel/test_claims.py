"""Claims (K32): what an agent says without Handrail having measured it is progress if it is the
best so far, a bounded number of times in a stretch."""

import random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.kernel.driven_run import ANA, DrivenRun, chain, files, node, team

from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Check, Evidence, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Warned
from handrail.kernel.stop.ledger import (
    CLAIM_KINDS,
    Assessment,
    Ledger,
    add_result,
    assess_result,
    renew,
)

pytestmark = pytest.mark.requirement("K32")

GROUPS = dict(CLAIM_KINDS.values())
PAIR = team(
    {"coder": ["tester"], "tester": ["coder"]},
    terminator="tester",
    stop_rules={"max_handoffs": 500, "max_steps": None},
)


def claimed(passed: bool = True, command: str = "pytest", **rest: Any) -> Evidence:
    check = Check(command=command, exit_code=0 if passed else 1, stderr="" if passed else "boom")
    return Evidence(checks=(check,), **rest)


class Claims:
    """A ledger that an agent's claims are written into."""

    def __init__(self, **limits: Any) -> None:
        self.limits, self.ledger = Limits(**limits), Ledger()

    def take(self, evidence: Evidence, agent: str = "coder", **rest: Any) -> Assessment:
        weighed = assess_result(self.ledger, self.limits, agent, evidence, **rest)
        step = self.ledger.steps + 1
        self.ledger = add_result(
            replace(self.ledger, steps=step), self.limits, step, evidence, Usage(), weighed
        )
        return weighed

    def count(self, evidence: list[Evidence], **rest: Any) -> int:
        """How many of these are progress."""
        return sum(bool(self.take(one, **rest).progress) for one in evidence)


@pytest.mark.requirement("S6", "S16")
def test_fewer_failures_than_ever_claimed_are_progress_twenty_times():
    shrinking = [Evidence(failures=tuple(map(str, range(n)))) for n in range(60, 0, -1)]
    assert Claims().count(shrinking) == 20
    growing = [Evidence(failures=tuple(map(str, range(n)))) for n in range(1, 40)]
    assert Claims().count(growing) == 0


@pytest.mark.requirement("S6", "S16")
def test_a_score_higher_than_ever_claimed_is_progress_twenty_times():
    assert Claims().count([Evidence(score=n) for n in range(60)]) == 20
    assert Claims().count([Evidence(score=0.5), Evidence(score=0.52), Evidence(score=0.4)]) == 1


@pytest.mark.requirement("S6", "S16")
def test_a_command_that_was_red_and_is_green_is_progress_once():
    book = Claims()
    assert book.take(claimed(False)).progress == ()
    assert book.take(claimed()).claims == ("green:pytest",)
    assert book.count([claimed(False), claimed()] * 5) == 0
    other_error = Evidence(checks=(Check(command="pytest", exit_code=1, stderr="other"),))
    assert book.count([other_error, claimed()]) == 0


@pytest.mark.requirement("S6", "S16")
def test_invented_commands_first_red_then_green_are_progress_twenty_times():
    invented = [claimed(passed, f"check {n}") for n in range(60) for passed in (False, True)]
    assert Claims().count(invented) == 20


@pytest.mark.requirement("S6", "S16")
@pytest.mark.parametrize("paths", [None, frozenset({"app.py"})])
def test_new_contents_and_new_states_of_the_ticket_are_progress_eight_times_together(
    paths: frozenset[str] | None,
):
    contents = [files(measured=False, app_py=str(n)) for n in range(30)]
    created = 1 if paths is None else 0
    book = Claims()
    assert book.count(contents[:5], paths=paths) == 5
    states = [Evidence(ticket_state=f"state {n}") for n in range(30)]
    assert book.count(states) == 3 + created
    assert book.count(contents[5:], paths=paths) == 0
    assert Claims().count(states) == 8
    assert Claims().count([Evidence(ticket_state="open")] * 9) == 1


@pytest.mark.requirement("S6", "S16")
def test_a_scratch_file_a_turn_is_progress_once_in_a_run():
    def scratch(first: int) -> list[Evidence]:
        return [Evidence(files={f"notes-{n}.md": "x"}) for n in range(first, first + 30)]

    book = Claims()
    assert book.count(scratch(0)) == 1
    book.ledger = renew(book.ledger)
    assert book.count(scratch(30)) == 1, "the first claim of the agent in its stretch"
    assert book.ledger.claims == {"created": 1}


@pytest.mark.requirement("S6", "S16")
def test_the_first_claim_of_each_agent_is_progress_also_if_another_made_it_before():
    book = Claims()
    assert book.take(Evidence(ticket_state="open")).claims == ("ticket:open",)
    again = book.take(Evidence(ticket_state="open"), agent="tester")
    assert (again.progress, again.claims) == (("claim:tester",), ())
    assert not book.take(Evidence(ticket_state="open"), agent="tester").progress


@pytest.mark.requirement("S6", "S16")
def test_where_only_measured_evidence_counts_no_claim_is_progress():
    book = Claims(evidence="measured")
    first = book.take(Evidence(ticket_state="open"))
    assert (first.progress, first.claims, first.claim_refused) == ((), (), True)
    assert book.take(Evidence(ticket_state="open", measured=True)).progress == ("ticket:open",)


@pytest.mark.requirement("S6")
def test_a_claim_neither_hides_nor_makes_a_measurement():
    book = Claims()
    book.take(Evidence(ticket_state="open", failures=()))
    assert book.take(Evidence(ticket_state="open", measured=True)).progress == ("ticket:open",)
    assert not book.take(Evidence(failures=("a",), measured=True)).progress


@pytest.mark.requirement("S16")
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_claimed_no_stretch_has_more_progress_than_its_kinds_allow(seed: int):
    chance = random.Random(seed)
    book, agents = Claims(), ("a", "b", "c")
    for stretch in range(3):
        progress = 0
        for n in range(300):
            evidence = Evidence(
                files={chance.choice(("app.py", f"new {n}")): str(n)},
                checks=tuple(
                    Check(command=f"c{n // 2}", exit_code=chance.choice((0, 1)), stderr="boom")
                    for _ in range(2)
                ),
                score=n * stretch,
                ticket_state=f"state {n}",
                failures=tuple(map(str, range(chance.randint(0, 1_000)))),
            )
            progress += bool(book.take(evidence, agent=chance.choice(agents)).progress)
        assert progress <= sum(GROUPS.values()) + len(agents)
        assert len(book.ledger.claims) <= sum(GROUPS.values())
        book.ledger = renew(book.ledger)


# In a run


def play(run: DrivenRun, claims: list[Evidence]) -> None:
    """The coder claims; the tester hands back."""
    for evidence in claims:
        if not run.run.has_ended:
            run.hand("tester", evidence=evidence)
        if not run.run.has_ended:
            run.hand("coder")


def refusals(run: DrivenRun) -> list[Warned]:
    return [warned for warned in run.of(Warned) if warned.code == "claim_not_counted"]


@pytest.mark.requirement("S16")
def test_a_team_that_gets_better_every_round_is_not_stopped():
    run = DrivenRun(PAIR)
    better = [
        Evidence(files={"app.py": str(n)}, failures=tuple(map(str, range(n))))
        for n in range(12, -1, -1)
    ]
    play(run, better)
    assert not run.run.has_ended
    assert not refusals(run)
    play(run, better)
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"


@pytest.mark.requirement("S16")
def test_a_claim_that_did_not_count_is_warned_of_once_a_stretch():
    rules = {"repeat_limit": None, "max_edge": None, "max_handoffs": 500, "max_steps": None}
    run = DrivenRun({**PAIR, "stop_rules": rules})
    play(run, [Evidence(ticket_state=str(n)) for n in range(12)])
    (warned,) = refusals(run)
    assert warned.step_id == "coder"
    assert warned.message == (
        "what 'coder-1' claims is no progress: it repeats another, or such claims were progress "
        "often enough; let Handrail measure it, by a verifier whose evidence is measured"
    )
    run.do(c.Move(by=ANA, step_id="coder", reason="again"))
    play(run, [Evidence(ticket_state=str(n)) for n in range(20, 32)])
    assert len(refusals(run)) == 2
    assert run.replayed() == run.run


@pytest.mark.requirement("S16")
def test_the_warning_says_that_the_definition_takes_measured_evidence_only():
    run = DrivenRun(chain(node("fix"), stop_rules={"evidence": "measured"}))
    run.succeed("fix", evidence=Evidence(ticket_state="done"))
    assert "stop_rules.evidence is 'measured'" in refusals(run)[0].message
    run = DrivenRun({**PAIR, "stop_rules": {"evidence": "measured"}})
    run.report(outcome=None, evidence=Evidence(ticket_state="done"))
    assert refusals(run)
