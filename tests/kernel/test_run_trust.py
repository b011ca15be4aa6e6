"""Who may do what to a run, and what nobody can talk it into: authority, claims, forgery."""

from datetime import timedelta

import pytest
from tests.kernel.driven_run import (
    ANA,
    OLA,
    DrivenRun,
    chain,
    files,
    green,
    node,
    plan_of,
    red,
    team,
    used,
)

from handrail.kernel.definition.limits import StopRules
from handrail.kernel.result import Check, Evidence, Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.decision_builder import ReleaseLock
from handrail.kernel.run.events import Ended, Faulted, HandedOff, Warned
from handrail.kernel.run.state import Person
from handrail.kernel.stop.constraint_patterns import is_command_forbidden, is_path_forbidden

LOOSE = {"max_handoffs": 60, "max_steps": 1_000, "max_duration": "1h"}
TRIO = team({"c": ["v"], "v": ["c", "p"], "p": ["c"]}, terminator="p", stop_rules=LOOSE)


def code(decision) -> str | None:
    return decision.refusal.code if decision.refusal else None


def around(run: DrivenRun, **evidence: Evidence) -> str:
    """c and v hand to each other with this evidence until a rule ends it; the rule."""
    while not run.run.has_ended:
        run.hand(
            "v" if "c" in run.run.positions else "c",
            evidence=evidence[next(iter(run.run.positions))],
        )
    assert run.run.stop is not None
    return run.run.stop.rule


@pytest.mark.requirement("S3", "S9")
def test_a_green_check_beside_a_red_one_does_not_hide_that_it_fails_again() -> None:
    both = Evidence(
        checks=(
            Check(command="pytest", exit_code=1, stderr="E boom"),
            Check(command="ruff", exit_code=0),
        ),
        measured=True,
    )
    run = DrivenRun(TRIO)
    assert around(run, c=both, v=both) == "same_error"
    assert run.run.ledger.steps == 3


@pytest.mark.requirement("S16")
def test_a_claimed_failure_does_not_make_a_measured_success_new_progress() -> None:
    run = DrivenRun(TRIO)
    rounds = 0
    while not run.run.has_ended:
        rounds += 1
        claim = Evidence(checks=(Check(command="t", exit_code=1, stderr=f"Error {'x' * rounds}"),))
        run.hand("v", evidence=claim)
        if not run.run.has_ended:
            run.hand("c", evidence=green("t"))
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"
    assert run.run.ledger.handoffs <= 8


@pytest.mark.requirement("S16")
def test_a_claim_does_not_hide_what_is_measured_afterwards() -> None:
    run = DrivenRun(TRIO, paths=("a.py",))
    for i in range(20):
        run.hand("v", evidence=Evidence(files={"a.py": str(i)}))
        run.hand("c", evidence=Evidence(files={"a.py": str(i)}, measured=True))
    assert not run.run.has_ended
    run = DrivenRun(TRIO)
    run.hand("v", evidence=Evidence(failures=()))
    for left in range(20, 5, -1):
        names = tuple(f"t{n}" for n in range(left))
        run.hand("c", evidence=Evidence(failures=names, measured=True))
        run.hand("v")
    assert not run.run.has_ended


@pytest.mark.requirement("S13")
def test_an_agent_cannot_move_the_goal_it_is_measured_against() -> None:
    run = DrivenRun(TRIO, context={"goal": {"command": "make e2e"}, "task_scope": "small"})
    moved = {"goal": {"command": "true"}, "task_scope": "large", "note": "x"}
    run.hand("v", data=moved, evidence=green("true"))
    assert run.run.context["goal"] == {"command": "make e2e"}
    assert run.run.context["task_scope"] == "small"
    assert run.run.context["note"] == "x"
    run.hand("c", evidence=red("make e2e"))
    claimed = Evidence(checks=(Check(command="make e2e", exit_code=0),), files={})
    assert around(run, c=claimed, v=claimed) in ("no_change", "repeated_pattern")
    assert run.run.terminal_status == "aborted_stuck", "what was measured wins over the claim"


@pytest.mark.requirement("R3.2", "R1.1")
def test_a_required_review_cannot_be_passed_by_the_terminator_or_a_migration() -> None:
    document = team(
        {"planner": ["invoice"], "invoice": ["planner"]},
        terminator="planner",
        review={"after": ["invoice"], "back_to": "planner"},
    )
    run = DrivenRun(document)
    run.hand("invoice")
    run.hand("planner")
    run.report(outcome=Outcome.TERMINATE, reason="done")
    assert run.run.status == "waiting"
    run = DrivenRun(team({"p": ["s"], "s": ["p"]}, terminator="p"))
    run.plan = plan_of(team({"p": ["s"], "s": ["p"]}, review={"after": ["s"], "back_to": "p"}))
    run.do(c.Migrate(by=ANA, definition_id="t", version=2, step_id="s", reason="review it"))
    run.report(outcome=Outcome.TERMINATE)
    assert run.run.status == "waiting"


@pytest.mark.requirement("S13")
def test_an_approved_partial_result_stays_partial_and_names_what_remains() -> None:
    run = DrivenRun(team({"p": ["i"], "i": []}, review={"after": ["i"], "back_to": "p"}))
    run.hand("i")
    run.report(outcome=Outcome.TERMINATE, status="done_partial", remaining=("line 4",))
    run.answer("ok", by=OLA)
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.remaining) == ("done_partial", ("line 4",))


@pytest.mark.requirement("S14", "S3")
def test_what_a_failed_or_faulty_answer_rests_on_is_judged_all_the_same() -> None:
    rules = {"constraints": {"paths": ["secrets/*"]}}
    run = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules=rules))
    touched = Evidence(files={"secrets/key": "1"})
    run.report(outcome=Outcome.FAILURE, reason="x", evidence=touched)
    assert run.run.terminal_status == "aborted_constraint"
    run = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"protocol_error_limit": 9}))
    for _ in range(3):
        run.report(outcome=Outcome.FAILURE, evidence=red())
    assert run.run.stop is not None
    assert run.run.stop.rule == "same_error"
    run = DrivenRun(chain(node("a"), stop_rules={"max_tokens": 5}))
    fence = run.claim()
    from handrail.kernel.result import Result

    spent = Result(usage=used(tokens=6))
    run.do(c.Report(fence=fence, agent="a-1", malformed="no JSON", result=spent))
    assert run.run.terminal_status == "aborted_constraint"


def test_a_person_named_like_a_level_does_not_have_it() -> None:
    run = DrivenRun(chain(node("ok", "approval", approvers=["ceo"])))
    assert code(run.answer("ok", by=Person(name="ceo", role="viewer"))) == "not_allowed"
    run = DrivenRun(chain(node("ok", "approval", approvers=["operator"])))
    assert code(run.answer("ok", by=OLA)) is None
    run = DrivenRun(chain(node("ok", "approval", approvers=["vic"])))
    assert code(run.answer("ok", by=Person(name="vic", role="viewer"))) is None


def test_with_four_eyes_whoever_changed_or_revised_what_is_shown_may_not_approve_it() -> None:
    document = chain(node("a"), node("pay", "approval", four_eyes=True, revise_to="a"))
    run = DrivenRun(document, filed_by="fil", context={"amount": 1})
    run.succeed("a")
    run.do(c.Patch(by=ANA, patch={"amount": 82_000}))
    assert code(run.answer("ok", by=ANA)) == "author"
    ben = Person(name="ben", role="ceo")
    run.answer("less, please", by=ben)
    run.succeed("a")
    assert code(run.answer("ok", by=ben)) == "author"


def test_an_operator_withdraws_only_what_somebody_filed() -> None:
    run = DrivenRun(chain(node("a")))
    assert code(run.do(c.Close(by=Person(name="", role="operator"), reason="x"))) == "not_allowed"


@pytest.mark.requirement("L12.4")
def test_a_lock_is_given_back_whatever_becomes_of_the_run() -> None:
    first = chain(node("apply", role="engineering-manager", kind="commit", repository="shop"))
    run = DrivenRun(first)
    run.do(c.GrantLock(step_id="apply", lock=3))
    run.plan = plan_of(chain(node("other")))
    moved = run.do(
        c.Migrate(by=ANA, definition_id="w", version=2, step_id="other", reason="renamed")
    )
    assert ReleaseLock(step_id="apply", repository="shop", lock=3) in moved.effects
    spent = chain(
        node("a"),
        node("apply", role="engineering-manager", kind="commit", repository="shop"),
        stop_rules={"max_tokens": 5},
    )
    run = DrivenRun(spent)
    run.succeed("a", usage=used(tokens=5))
    ended = run.do(c.GrantLock(step_id="apply", lock=4))
    assert run.run.has_ended
    assert ReleaseLock(step_id="apply", repository="shop", lock=4) in ended.effects


def test_a_result_in_a_pause_gets_only_the_rest_of_the_pause() -> None:
    run = DrivenRun(chain(node("a"), node("b", queue_timeout=100)))
    run.claim("a")
    run.do(c.Pause(by=ANA, reason="x"))
    run.now += timedelta(seconds=1_000)
    run.succeed("a")
    run.now += timedelta(seconds=10)
    run.do(c.Resume(by=ANA, reason="x"))
    run.advance(99)
    assert not run.run.pending_approvals
    run.advance(1)
    assert run.question().kind == "escalation"


@pytest.mark.requirement("K15")
def test_a_migration_does_not_revive_a_run_whose_question_expired() -> None:
    run = DrivenRun(chain(node("ok", "approval")))
    run.now += timedelta(days=8)
    decision = run.do(c.Migrate(by=ANA, definition_id="w", version=2, step_id="ok", reason="later"))
    assert code(decision) == "ended"
    assert run.run.terminal_status == "aborted_stuck"


@pytest.mark.requirement("S16")
def test_progress_does_not_run_out_and_scores_have_no_ceiling() -> None:
    from handrail import Guard

    rules = StopRules(max_handoffs=None, max_steps=None, max_duration=None)
    with Guard(rules).run("long") as run:
        for i in range(1_100):
            run.handoff("a", "b")
            run.result("b", milestone=f"m{i}")
            run.handoff("b", "a")
    with Guard(rules).run("scores") as run:
        for i in range(60):
            run.handoff("p", "r")
            run.result("r", evidence={"score": 40 + 5 * i})
            run.handoff("r", "p")


def test_lost_leases_and_unusable_answers_of_a_turn_are_told_apart() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    run.report()
    run.report()
    fence = run.claim()
    run.do(c.Lose(fence=fence, reason="gone"))
    assert run.run.stop is not None
    assert run.run.stop.rule == "protocol"
    assert "2 unusable answers and 1 lost leases of a" in run.run.stop.reason
    assert run.run.stop.evidence == ("step 1", "step 2", "step 3")


@pytest.mark.requirement("K19")
def test_a_replayed_answer_is_a_step_and_not_one_too_many() -> None:
    document = team(
        {"a": ["b"], "b": ["a"]},
        terminator="a",
        agents={"b": {"tasks": [{"id": "t", "once": True}]}},
        stop_rules={"max_steps": 3},
    )
    run = DrivenRun(document)
    run.hand("b")
    run.hand("a", evidence=files(x="1"))
    run.hand("b", evidence=files(x="2"))
    assert run.run.ledger.steps == 3
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.seen) == ("max_steps", 4)
    assert not run.of(HandedOff)[-1].accepted


@pytest.mark.requirement("R5.1", "R5.2")
def test_after_a_revision_a_once_only_task_is_done_again() -> None:
    document = team(
        {"p": ["s"], "s": []},
        review={"after": ["s"], "back_to": "p"},
        agents={"s": {"tasks": [{"id": "t", "once": True}]}},
    )
    run = DrivenRun(document)
    run.hand("s")
    run.hand("review")
    run.answer("change the date", by=OLA)
    run.hand("s")
    assert not run.of(HandedOff)[-1].already_done
    assert set(run.run.positions) == {"s"}


@pytest.mark.requirement("H2.1", "H5.5")
def test_the_terminators_own_end_marker_wins_over_its_handoff() -> None:
    run = DrivenRun(team({"t": ["a"], "a": []}, terminator="t"))
    run.hand("a", marker="TERMINATE_WORKFLOW")
    assert run.run.terminal_status == "done_success"
    assert "marker_wins" in [w.code for w in run.of(Warned)]
    run = DrivenRun(team({"t": ["a"], "a": ["t"]}, terminator="t"))
    run.report(marker="TERMINATE_WORKFLOW", text="resolved")
    assert run.run.terminal_status == "done_success"
    run = DrivenRun(team({"a": ["t"], "t": []}, terminator="t"))
    run.hand("t", marker="TERMINATE_WORKFLOW")
    assert not run.run.has_ended
    assert "marker_ignored" in [w.code for w in run.of(Warned)]


def test_an_outcome_nobody_knows_is_refused_and_a_plain_text_outcome_is_taken() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    assert code(run.report(outcome="dance")) == "unusable"
    run.report(outcome="terminate")
    assert run.run.has_ended


def test_evidence_beyond_measure_is_refused() -> None:
    run = DrivenRun(chain(node("a")))
    many = tuple(Check(command=str(i), exit_code=1) for i in range(51))
    assert code(run.succeed(evidence=Evidence(checks=many))) == "unusable"
    assert code(run.succeed(evidence=Evidence(files={"a/" * 600: "1"}))) == "unusable"


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (".env", "**/.env"),
        ("a/b/.env", "**/.env"),
        ("src/../secrets/key", "secrets/*"),
        ("secrets/deep/key", "secrets"),
        ("./secrets//key", "secrets/*"),
        ("secrets\\key", "secrets/*"),
        ("/home/me/repo/secrets/key", "secrets/*"),
    ],
)
def test_a_forbidden_path_is_found_however_it_is_written(path: str, rule: str) -> None:
    assert is_path_forbidden(path, rule)
    assert not is_path_forbidden("src/app.py", rule)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push origin main",
        "sudo git push",
        'bash -c "git push"',
        "/usr/bin/git push",
        "X=1 git push",
        "cd x && git push",
        "(git push)",
    ],
)
def test_a_forbidden_command_is_found_however_it_is_wrapped(command: str) -> None:
    assert is_command_forbidden(command, "git push")
    assert not is_command_forbidden("git status", "git push")
    assert not is_command_forbidden("echo digit pushes", "git push")


def test_a_task_condition_that_cannot_be_evaluated_is_recorded() -> None:
    agents = {"b": {"tasks": [{"id": "t", "when": "missing > 1"}]}}
    run = DrivenRun(team({"a": ["b"], "b": []}, terminator="a", agents=agents))
    run.hand("b")
    assert "condition_error" in [w.code for w in run.of(Warned)]


def test_a_lock_that_never_comes_is_what_the_person_is_told() -> None:
    run = DrivenRun(chain(node("c", role="engineering-manager", kind="commit", queue_timeout=60)))
    before = run.measure
    run.advance(60)
    assert "commit lock" in run.question().text
    assert run.measure < before


def test_a_run_that_starts_inside_a_branch_passes_its_merge() -> None:
    from tests.kernel.test_run_workflow import block

    run = DrivenRun(block(), from_step_id="b")
    run.succeed("b")
    assert set(run.run.positions) == {"q"}


def test_a_clock_due_on_a_rounded_microsecond_still_ends_the_run() -> None:
    rules = {"max_duration": 100.0000003}
    run = DrivenRun(team({"a": []}, terminator="a", stop_rules=rules))
    run.advance(100)
    run.advance(1)
    assert run.of(Ended)[-1].stop.rule == "max_duration"


def test_faults_keep_the_text_that_was_said() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    run.report(text="I rest.")
    assert run.of(Faulted)[0].result.text == "I rest."


def test_a_review_beyond_the_handoff_limit_ends_the_run() -> None:
    rules = {"max_handoffs": 1}
    run = DrivenRun(
        team({"p": ["i"], "i": []}, review={"after": ["i"], "back_to": "p"}, stop_rules=rules)
    )
    run.hand("i")
    run.hand("review")
    assert run.run.stop is not None
    assert run.run.stop.rule == "max_handoffs"
    assert not run.run.pending_approvals


def test_a_lock_for_an_unknown_place_of_a_run_that_just_expired_is_nobodys() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=10)))
    run.now += timedelta(seconds=10)
    decision = run.do(c.GrantLock(step_id="nowhere", lock=1))
    assert run.run.has_ended
    assert not [e for e in decision.effects if isinstance(e, ReleaseLock)]
    busy = DrivenRun(team({"a": []}, terminator="a"))
    busy.now += timedelta(seconds=601)
    assert not [
        e for e in busy.do(c.GrantLock(step_id="a", lock=1)).effects if isinstance(e, ReleaseLock)
    ]


def test_long_commands_are_told_apart_by_their_hash() -> None:
    from handrail.kernel.stop.ledger import KEY_CHARS, short_key

    one, other = "x" * 1_000, "x" * 999 + "y"
    assert len(short_key(one)) == KEY_CHARS
    assert short_key(one) != short_key(other)
