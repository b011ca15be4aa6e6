"""Beads: filed, changed, run again, and the files that hang on them."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    chain,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    team,
)

from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.state import Person
from handrail.store.beads import BEAD_FILES_MAX
from handrail.testing.clock import ManualClock
from handrail.views.beads import FILE_BYTES_MAX

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))
ASKS = chain(node("a"), node("ok", "approval", revise_to="a"))
OLA = Person(name="ola", role="operator")
VIEWER = Person(name="vic", role="viewer")


DUE_DAYS = {"soon": 1, "late": 2, "later": 3}


# Filing


def test_a_bead_without_a_definition_waits_for_one(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            wanted = {"description": "It is slow.", "context": {"k": [1.5, "é"]}, "priority": 3}
            bead = await engine.beads.create(title="A bug", filed_by="ola", **wanted)
            assert (bead.type, bead.status, bead.parent_id) == ("work", "open", None)
            assert (bead.execution_id, bead.workflow_id, bead.error) == (None, None, None)
            assert (bead.created_at, bead.filed_by) == (clock.now(), "ola")
            assert {name: getattr(bead, name) for name in wanted} == wanted
            assert await engine.beads.get(bead.id) == bead
            assert (await engine.beads.list()).items == (bead,)

    run_async(play())


def test_beads_are_sorted_by_when_they_are_due_and_found_by_it(url: str, clock: ManualClock):
    """A run neither sets nor changes the date, and those without a date come last."""

    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            days = {name: datetime(2030, 1, day, tzinfo=UTC) for name, day in DUE_DAYS.items()}
            for name in ("late", "none", "soon", "later"):
                definition = "w" if name in ("soon", "none") else None
                due_at = days.get(name)
                bead = await engine.beads.create(title=name, workflow_id=definition, due_at=due_at)
                assert bead.due_at == due_at
                assert await engine.beads.get(bead.id) == bead
            agent = await register_worker(engine)
            await agent.work(Result(outcome=Outcome.SUCCESS))

            async def titles(**query: Any) -> list[str]:
                found, cursor = [], ""
                while cursor is not None:
                    page = await engine.beads.list(**query, limit=1, cursor=cursor)
                    found += [bead.title for bead in page.items]
                    cursor = page.next_cursor
                return found

            assert await titles(sort="due_at") == ["soon", "late", "later", "none"]
            assert await titles(due_before=days["later"]) == ["soon", "late"]
            assert await titles(due_before=days["later"], sort="due_at") == ["soon", "late"]
            assert await titles(due_before=days["later"], type="approval") == []
            assert await titles() == ["later", "soon", "none", "late"]

    run_async(play())


def test_beads_are_sorted_by_their_priority_the_newest_of_the_same_first(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            for title, priority in (("low", -1), ("old", 5), ("new", 5), ("high", 9)):
                await engine.beads.create(title=title, priority=priority)
            found, cursor = [], ""
            while cursor is not None:
                page = await engine.beads.list(sort="priority", limit=1, cursor=cursor)
                found += [bead.title for bead in page.items]
                cursor = page.next_cursor
            assert found == ["high", "new", "old", "low"]

    run_async(play())


def test_a_bead_with_a_definition_runs_at_once(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            bead = await engine.beads.create(title="A bug", workflow_id="w", context={"k": 1})
            assert (bead.status, bead.workflow_id) == ("in_progress", "w")
            run = await engine.runs.state(bead.execution_id or "")
            assert (run.bead_id, run.title, run.context) == (bead.id, "A bug", {"k": 1})

    run_async(play())


@pytest.mark.parametrize("workflow_id", ["", "w"])
def test_under_the_same_key_the_same_bead_is_meant(url: str, clock: ManualClock, workflow_id: str):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            wanted: dict[str, Any] = {
                "title": "A bug",
                "workflow_id": workflow_id,
                "filed_by": "ola",
                "key": "k",
            }
            beads = await asyncio.gather(*(engine.beads.create(**wanted) for _ in range(3)))
            assert len({bead.id for bead in beads}) == 1
            assert (await engine.beads.create(**wanted)).id == beads[0].id
            other = engine.beads.create(**{**wanted, "title": "Another bug"})
            assert await refusal_code(other) == "key_reused"
            theirs = await engine.beads.create(**{**wanted, "filed_by": "eve"})
            assert theirs.id != beads[0].id
            assert len((await engine.beads.list()).items) == 2

    run_async(play())


@pytest.mark.requirement("R3.2")
def test_what_cannot_be_filed_is_refused_and_nothing_is_stored(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            codes = {
                "no_review": {"workflow_id": "w", "review": "required"},
                "no_workflow": {"review": "required"},
                "unknown_definition": {"workflow_id": "x"},
                "engine_keys": {"context": {"last_run_at": "now"}},
                "unusable": {"context": {"x": float("nan")}},
                "bad_priority": {"priority": 2**40},
                "bad_key": {"key": "k" * 300},
            }
            for code, wanted in codes.items():
                assert await refusal_code(engine.beads.create(title="t", **wanted)) == code
            assert await refusal_code(engine.beads.create(title="a\0b")) == "unusable"
            assert (
                await refusal_code(engine.beads.create(title="a\ud800b", workflow_id="w"))
                == "unusable"
            )
            assert (await engine.beads.list()).items == ()

    run_async(play())


# Looking


@pytest.mark.requirement("L10.7")
def test_the_context_of_a_run_that_goes_on_is_the_runs(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("a"), node("b")))
            bead = await engine.beads.create(title="t", workflow_id="w")
            agent = await register_worker(engine)
            await agent.work(Result(outcome=Outcome.SUCCESS, data={"x": 1}))
            assert (await engine.beads.get(bead.id)).context["x"] == 1
            await agent.work(Result(outcome=Outcome.SUCCESS, data={"x": 2}))
            (listed,) = (await engine.beads.list(status="closed")).items
            assert (listed.context["x"], listed.status) == (2, "closed")

    run_async(play())


@pytest.mark.requirement("L6.3", "L6.4")
def test_a_question_is_a_bead_below_the_work_with_its_dossier(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("a", max_attempts=1)))
            bead = await engine.beads.create(title="t", workflow_id="w", priority=4)
            failed = Result(outcome=Outcome.FAILURE, reason="no disk", text="it is full")
            await (await register_worker(engine)).work(failed)
            (asked,) = (await engine.beads.list(type="approval")).items
            assert (asked.parent_id, asked.status, asked.priority) == (bead.id, "open", 4)
            shown = await engine.beads.get(asked.id)
            assert (shown.type, shown.execution_id) == ("approval", bead.execution_id)
            assert shown.context["original_bead_id"] == bead.id
            assert shown.context["attempt_history"][0]["text"] == "it is full"
            assert "no disk" in shown.context["failure_reason"]
            assert shown.context["proposed_next_steps"]
            await engine.approvals.answer(asked.id, decision="reject", by=ANA)
            assert (await engine.beads.get(asked.id)).status == "closed"
            assert await refusal_code(engine.beads.get(f"{bead.execution_id}.q9")) == "unknown_bead"
            assert await refusal_code(engine.beads.get("nobody")) == "unknown_bead"

    run_async(play())


def test_the_bead_of_an_aborted_run_says_why(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(team({"p": ["p"]}, terminator="p", stop_rules={"max_handoffs": 1}))
            bead = await engine.beads.create(title="t", workflow_id="t")
            agent = await register_worker(engine, "p")
            for _ in range(2):
                await agent.work(Result(outcome=Outcome.HANDOFF, to="p", reason="again"))
            bead = await engine.beads.get(bead.id)
            assert bead.status == "error"
            assert bead.error is not None
            assert bead.error["rule"] == "max_handoffs"
            assert bead.error["execution_id"] == bead.execution_id
            assert (await engine.beads.list(status="error")).items == (bead,)

    run_async(play())


def test_beads_are_listed_in_pages_the_newest_first(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            filed = [await engine.beads.create(title=f"{n}") for n in range(5)]
            found: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await engine.beads.list(cursor=cursor, limit=2)
                found += [bead.id for bead in page.items]
                cursor = page.next_cursor
            assert found == [bead.id for bead in reversed(filed)]
            assert (await engine.beads.list(limit=5)).next_cursor is None
            assert await refusal_code(engine.beads.list(limit=0)) == "bad_limit"
            assert await refusal_code(engine.beads.list(limit=501)) == "bad_limit"
            assert await refusal_code(engine.beads.list(cursor="a\0b")) == "bad_cursor"
            assert await refusal_code(engine.beads.list(status="done")) == "bad_status"

    run_async(play())


# Changing


def test_a_patch_is_merged_into_the_context(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            bead = await engine.beads.create(title="t", context={"a": 1, "b": {"x": 1, "y": 2}})
            patched = await engine.beads.patch(bead.id, {"a": None, "b": {"y": 3}, "c": []}, by=OLA)
            assert patched.context == {"b": {"x": 1, "y": 3}, "c": []}
            assert patched.updated_at > bead.updated_at
            assert await engine.beads.get(bead.id) == patched

    run_async(play())


def test_no_patch_is_lost_among_many_at_once(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            bead = await one.beads.create(title="t")
            patches = [
                engine.beads.patch(bead.id, {f"{name}{n}": n}, by=OLA)
                for n in range(4)
                for name, engine in (("one", one), ("two", two))
            ]
            await asyncio.gather(*patches)
            assert len((await one.beads.get(bead.id)).context) == 8

    run_async(play())


@pytest.mark.requirement("K15", "K16")
def test_a_patch_of_a_run_that_goes_on_voids_what_had_shown_the_old(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ASKS)
            bead = await engine.beads.create(title="t", workflow_id="w")
            await (await register_worker(engine)).work()
            (question,) = await engine.run(bead.execution_id or "").questions(60)
            patched = await engine.beads.patch(bead.id, {"x": 1}, by=OLA)
            assert patched.context["x"] == 1
            (again,) = await engine.run(bead.execution_id or "").questions(60)
            assert again.id != question.id
            assert (await engine.approvals.get(question.id)).status == "void"
            run = await engine.approvals.answer(again.id, "ok", by=ANA)
            assert run.context["x"] == 1
            after = await engine.beads.patch(bead.id, {"x": 2}, by=OLA)
            assert (after.context["x"], after.status) == (2, "closed")

    run_async(play())


def test_who_may_not_change_a_bead_changes_nothing(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            for workflow_id in ("", "w"):
                bead = await engine.beads.create(title="t", workflow_id=workflow_id)
                keys = {"redispatch_requested": True}
                assert (
                    await refusal_code(engine.beads.patch(bead.id, keys, by=OLA)) == "engine_keys"
                )
                no = engine.beads.patch(bead.id, {"x": 1}, by=VIEWER)
                assert await refusal_code(no) == "not_allowed"
                assert (await engine.beads.get(bead.id)).context == {}
            assert await refusal_code(engine.beads.patch("nobody", {}, by=OLA)) == "unknown_bead"

    run_async(play())


# Running again


def test_a_bead_runs_again_as_it_was_filed_with_what_is_known_now(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("a"), node("b")))
            wanted = {"title": "t", "description": "d", "priority": 5, "filed_by": "ola"}
            bead = await engine.beads.create(**wanted, context={"k": 1}, workflow_id="w")
            assert await refusal_code(engine.beads.restart(bead.id)) == "bead_busy"
            agent = await register_worker(engine)
            await agent.work(Result(outcome=Outcome.SUCCESS, data={"x": 1}))
            await engine.run(bead.execution_id or "").close(by=ANA, reason="enough")
            await engine.beads.patch(bead.id, {"y": 2}, by=OLA)
            again = engine.run(
                await engine.beads.restart(bead.id, from_node="b", by=Person(name="eve"))
            )
            run = await again.state()
            assert (run.title, run.description, run.filed_by) == ("t", "d", "ola")
            assert run.context == {"k": 1, "x": 1, "y": 2}
            assert list(run.positions) == ["b"]
            runs = await engine.run_queries.list(bead_id=bead.id)
            assert [item.priority for item in runs.items] == [5, 5]
            assert [item.id for item in runs.items] == [again.id, bead.execution_id]
            assert (await engine.beads.get(bead.id)).execution_id == again.id

    run_async(play())


def test_a_bead_that_never_ran_runs_for_the_first_time(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            bead = await engine.beads.create(title="t")
            assert await refusal_code(engine.beads.restart(bead.id)) == "no_workflow"
            assert await refusal_code(engine.beads.restart("nobody")) == "unknown_bead"
            no = engine.beads.restart(bead.id, workflow_id="w", from_node="x")
            assert await refusal_code(no) == "unknown_place"
            run = engine.run(await engine.beads.restart(bead.id, workflow_id="w"))
            await (await register_worker(engine)).work()
            assert (await engine.beads.get(bead.id)).status == "closed"
            assert (await run.state()).bead_id == bead.id

    run_async(play())


@pytest.mark.requirement("R3.2")
def test_a_bead_that_wants_a_review_wants_it_again(url: str, clock: ManualClock):
    document = team({"p": []}, review={"after": ["p"], "back_to": "p", "required": False})

    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(document)
            bead = await engine.beads.create(title="t", workflow_id="t", review="required")
            run = engine.run(bead.execution_id or "")
            await run.close(by=ANA, reason="enough")
            assert (
                await engine.runs.state(await engine.beads.restart(bead.id))
            ).review == "required"

    run_async(play())


def test_under_the_same_key_a_bead_runs_again_once(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            bead = await engine.beads.create(title="t")
            wanted: dict[str, Any] = {"workflow_id": "w", "by": OLA, "key": "k"}
            first = await engine.beads.restart(bead.id, **wanted)
            assert await engine.beads.restart(bead.id, **wanted) == first
            await (await register_worker(engine)).work(
                Result(outcome=Outcome.SUCCESS, data={"x": 1})
            )
            assert await engine.beads.restart(bead.id, **wanted) == first
            no = engine.beads.restart(bead.id, **{**wanted, "from_node": "a"})
            assert await refusal_code(no) == "key_reused"
            assert len((await engine.run_queries.list(bead_id=bead.id)).items) == 1

    run_async(play())


# Files


def test_a_file_comes_back_as_it_went_in_and_with_the_dispatch(url: str, clock: ManualClock):
    content = bytes(range(256))

    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            bead = await engine.beads.create(title="t", workflow_id="w")
            info = await engine.beads.put_file(
                bead.id, "trace é.bin", content, content_type="image/png", by="ola"
            )
            assert (info.size, info.uploaded_by) == (256, "ola")
            assert info.sha256 == hashlib.sha256(content).hexdigest()
            assert await engine.beads.files(bead.id) == [info]
            assert await engine.beads.file(bead.id, "trace é.bin") == (info, content)
            dispatch = await (await register_worker(engine)).get()
            (given,) = dispatch.files
            assert (given.name, given.size, given.sha256) == (info.name, 256, info.sha256)
            shown = await engine.dispatches.view(dispatch)
            assert shown.bead.files == (given,)

    run_async(play())


def test_a_file_never_changes(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            bead = await engine.beads.create(title="t")
            info = await engine.beads.put_file(bead.id, "a", b"1")
            clock.advance(5)
            assert await engine.beads.put_file(bead.id, "a", b"1", by="eve") == info
            assert await refusal_code(engine.beads.put_file(bead.id, "a", b"2")) == "file_exists"
            assert (await engine.beads.file(bead.id, "a"))[1] == b"1"
            for n in range(1, BEAD_FILES_MAX):
                await engine.beads.put_file(bead.id, f"f{n}", b"")
            assert (
                await refusal_code(engine.beads.put_file(bead.id, "more", b"")) == "too_many_files"
            )
            assert await engine.beads.put_file(bead.id, "a", b"1") == info

    run_async(play())


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "x" * 201, "\ud800"]
)
def test_a_file_has_a_plain_name(file_url: str, clock: ManualClock, name: str):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            bead = await engine.beads.create(title="t")
            assert await refusal_code(engine.beads.put_file(bead.id, name, b"")) == "bad_name"
            assert await engine.beads.files(bead.id) == []

    run_async(play())


def test_what_is_no_file_of_a_bead_is_refused(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            bead = await engine.beads.create(title="t")
            large = bytes(FILE_BYTES_MAX + 1)
            assert (
                await refusal_code(engine.beads.put_file(bead.id, "a", large)) == "file_too_large"
            )
            await engine.beads.put_file(bead.id, "a", large[:-1])
            wrong = engine.beads.put_file(bead.id, "b", b"", content_type="text/plain\r\nX: y")
            assert await refusal_code(wrong) == "bad_content_type"
            assert await refusal_code(engine.beads.put_file("nobody", "a", b"")) == "unknown_bead"
            assert await refusal_code(engine.beads.files("nobody")) == "unknown_bead"
            assert await refusal_code(engine.beads.file("nobody", "a")) == "unknown_bead"
            assert await refusal_code(engine.beads.file(bead.id, "b")) == "unknown_file"

    run_async(play())
