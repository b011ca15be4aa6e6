"""Looking: lists of runs, questions and definitions, a run in full, its history and its bead's."""

from datetime import timedelta
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    chain,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
)

from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result
from handrail.testing.clock import ManualClock
from handrail.views.approvals import approvals
from handrail.views.history import transitions
from handrail.views.report import build_report
from handrail.views.run_view import run_view

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))
ASKS = chain(node("a"), node("ok", "approval", revise_to="a"))


async def ids(engine: Engine, **wanted: Any) -> list[str]:
    return [item.id for item in (await engine.run_queries.list(**wanted)).items]


# Runs


@pytest.mark.requirement("L10.7")
def test_runs_are_listed_and_found(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define({**ONE, "name": "other"})
            first = await start_run(engine, ONE, title="Invoices are SLOW", priority=2)
            clock.advance(60)
            second = await engine.start("other", title="100% broken", bead_id="TICKET-7")
            await engine.run(first.id).close(by=ANA, reason="enough")
            clock.advance(5)
            new, old = (await engine.run_queries.list()).items
            assert (new.id, old.id) == (second.id, first.id)
            assert (old.title, old.workflow_id, old.priority) == ("Invoices are SLOW", "w", 2)
            assert (old.terminal_status, old.stop_rule) == ("closed_by_human", "closed")
            assert (old.duration, new.duration, new.ended_at) == (60, 5, None)
            assert await ids(engine, status="running") == [second.id]
            assert await ids(engine, terminal_status="closed_by_human") == [first.id]
            assert await ids(engine, workflow_id="other") == [second.id]
            assert await ids(engine, bead_id="TICKET-7") == [second.id]
            assert await ids(engine, q="slow") == [first.id]
            assert await ids(engine, q="100%") == [second.id]
            assert await ids(engine, q="ticket-7") == [second.id]
            assert await ids(engine, q=second.id) == [second.id]
            assert await ids(engine, q="") == [second.id, first.id]
            since = clock.now() - timedelta(seconds=5)
            assert await ids(engine, since=since) == [second.id]
            assert await ids(engine, since=since, q="slow") == []
            assert await ids(engine, ended_since=since) == [first.id]
            assert await ids(engine, ended_before=since) == []
            for wrong in ("x" * 201, "a\0b"):
                assert await refusal_code(engine.run_queries.list(q=wrong)) == "bad_query"

    run_async(play())


def test_a_page_of_runs_leads_to_the_next(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            runs = [(await engine.start("w")).id for _ in range(5)]
            page = await engine.run_queries.list(limit=2)
            later = await engine.start("w")
            found = [item.id for item in page.items]
            while page.next_cursor is not None:
                page = await engine.run_queries.list(limit=2, cursor=page.next_cursor)
                found += [item.id for item in page.items]
            assert found == runs[::-1]
            assert later.id not in found
            assert await refusal_code(engine.run_queries.list(cursor="\n")) == "bad_cursor"
            assert await refusal_code(engine.run_queries.list(limit=0)) == "bad_limit"

    run_async(play())


def test_a_run_is_shown_as_its_events_say(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS, title="t")
            agent = await register_worker(engine)
            said = Result(outcome=Outcome.SUCCESS, text="done", data={"x": 1})
            await agent.work(said)
            state, events = await run.state(), await engine.runs.history(run.id)
            plan = await engine.run_queries._reader.plan_of(state)
            view = await engine.run_queries.view(run.id)
            assert view == run_view(plan, state, events, clock.now())
            summary = await engine.run_queries.summary(state)
            assert (summary.id, summary.remaining) == (run.id, view.remaining)
            assert await engine.run_queries.report(run.id) == build_report(events)
            (step,) = await engine.run_queries.steps(run.id)
            assert (step.dispatch_id, step.result, step.role) == (f"{run.id}.d1", said, ROLE)
            shown = await engine.run_queries.transitions(run.id)
            meant = transitions(events)
            assert [one.to_node_id for one in shown] == [one.to_node_id for one in meant]
            assert [one.timestamp for one in shown] == [one.timestamp for one in meant]

    run_async(play())


def test_a_run_that_nobody_knows_is_refused_everywhere(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            for look in (
                *(
                    engine.run_queries.view,
                    engine.run_queries.steps,
                    engine.run_queries.transitions,
                    engine.run_queries.report,
                ),
                *(engine.run_queries.events, engine.runs.history),
            ):
                assert await refusal_code(look("nobody")) == "unknown_run"

    run_async(play())


def test_a_summary_needs_no_look_at_the_events(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE)
            await (await register_worker(engine)).work()
            state = await run.state()
            monkeypatch.setattr(engine.store.journal, "read", None)
            monkeypatch.setattr(engine.store.runs, "load", None)
            monkeypatch.setattr(engine.store.definitions, "get", None)
            summary = await engine.run_queries.summary(state)
            assert (summary.terminal_status, summary.remaining) == ("done_success", 0)
            monkeypatch.undo()

    run_async(play())


# Events


@pytest.mark.requirement("L10.8")
def test_the_history_of_a_bead_is_that_of_all_its_runs(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            bead = await engine.beads.create(title="t", workflow_id="w", filed_by="ola")
            first = bead.execution_id or ""
            await engine.run(first).close(by=ANA, reason="enough")
            second = engine.run(await engine.beads.restart(bead.id))
            other = await engine.beads.create(title="o", workflow_id="w")
            events = [
                *await engine.run_queries.events(first, limit=500),
                *await engine.run_queries.events(second.id, limit=500),
            ]
            whole = await engine.run_queries.bead_history(bead.id, limit=500)
            assert (whole.items, whole.next_cursor) == (tuple(events), None)
            found: list[Any] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await engine.run_queries.bead_history(bead.id, cursor, limit=3)
                found += page.items
                cursor = page.next_cursor
            assert found == events
            assert (await engine.run_queries.bead_history(other.id)).items
            for wrong in ("x", f"{first}:", f"{first}:x", ":3"):
                assert (
                    await refusal_code(engine.run_queries.bead_history(bead.id, wrong))
                    == "bad_cursor"
                )

    run_async(play())


def test_events_of_a_run_are_numbered_and_say_who_did_it(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE, filed_by="ola")
            agent = await register_worker(engine, name="ada")
            await agent.work()
            events = await engine.run_queries.events(run.id)
            assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
            assert {one["execution_id"] for one in events} == {run.id}
            actors = {one["type"]: one["actor"] for one in events}
            assert (actors["started"], actors["claimed"]) == ("ola", "ada")
            assert (actors["reported"], actors["ended"]) == ("ada", "engine")
            assert await engine.run_queries.events(run.id, 3, 2) == events[3:5]
            assert await engine.run_queries.events(run.id, len(events)) == []

    run_async(play())


# Questions


def test_the_inbox_has_open_questions_with_what_they_show(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            agent = await register_worker(engine)
            runs: list[str] = []
            for text in ("first", "second", "third"):
                run = await start_run(engine, ASKS, title=text)
                runs.append(run.id)
                data = {"proposal": f"do {text}"}
                await agent.work(Result(outcome=Outcome.SUCCESS, text=text, data=data))
                clock.advance(1)
            await engine.approvals.answer(f"{runs[1]}.q1", "ok", by=ANA)
            third, first = (await engine.approvals.list(status="open")).items
            assert (third.execution_id, first.execution_id) == (runs[2], runs[0])
            assert (third.result, third.proposal) == ("third", "do third")
            assert third.proposed_next_steps
            (answered,) = (await engine.approvals.list(status="answered")).items
            assert (answered.by, answered.decision, answered.answer) == ("ana", "approve", "ok")
            for item in (third, first):
                full = await engine.approvals.get(item.id)
                (meant,) = approvals(await engine.runs.history(item.execution_id))
                assert full == meant
                for name in item.__struct_fields__:
                    assert getattr(item, name) == getattr(full, name), name
            of_first = await engine.approvals.list(execution_id=runs[0])
            assert [item.id for item in of_first.items] == [first.id]

    run_async(play())


def test_questions_come_in_pages_those_asked_last_first(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("ok", "approval")))
            runs = [(await engine.start("w")).id for _ in range(5)]
            found: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await engine.approvals.list(cursor=cursor, limit=2)
                found += [item.execution_id for item in page.items]
                cursor = page.next_cursor
            assert sorted(found) == sorted(runs)
            for wrong in ("x", "2026-01-01", "yesterday~q1", "~", "2026-W01-1~q", "2026-01-01~q"):
                assert await refusal_code(engine.approvals.list(cursor=wrong)) == "bad_cursor"
            assert await refusal_code(engine.approvals.list(status="closed")) == "bad_status"
            assert await refusal_code(engine.approvals.get("nobody.q1")) == "unknown_approval"

    run_async(play())


def test_an_answer_may_come_in_pieces_and_the_list_follows(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            await (await register_worker(engine)).work(DONE)
            (question,) = await run.questions(60)
            await run.pause(by=ANA, reason="lunch")
            clock.advance(3_600)
            await run.resume(by=ANA, reason="back")
            (item,) = (await engine.approvals.list()).items
            assert item.deadline == question.deadline + timedelta(hours=1)

    run_async(play())


# Definitions


@pytest.mark.requirement("L4.1", "L7.5")
def test_definitions_are_listed_with_their_versions_and_authors(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define({**ONE, "name": "v"}, by="ola")
            await engine.define(ONE, by="ola")
            await engine.define(ONE, by="eve")  # the same again
            await engine.define(ASKS, by="eve")
            page = await engine.definitions.list(limit=1)
            assert [(one.id, one.version) for one in page.items] == [("v", 1)]
            page = await engine.definitions.list(page.next_cursor or "", 1)
            assert [(one.id, one.version) for one in page.items] == [("w", 2)]
            assert page.next_cursor is None
            new, old = await engine.definitions.versions("w")
            assert [(one.version, one.created_by) for one in (new, old)] == [(2, "eve"), (1, "ola")]
            newest, first = await engine.definitions.get("w"), await engine.definitions.get("w", 1)
            assert (newest.version, newest.definition) == (2, ASKS)
            assert (first.version, first.definition) == (1, ONE)
            assert newest.bound is not None
            assert first.bound is not None
            assert newest.bound.questions > first.bound.questions
            for version in (3, 0, -1, 2**40):
                assert (
                    await refusal_code(engine.definitions.get("w", version)) == "unknown_definition"
                )
            assert await refusal_code(engine.definitions.get("x")) == "unknown_definition"
            assert await refusal_code(engine.definitions.versions("x")) == "unknown_definition"

    run_async(play())
