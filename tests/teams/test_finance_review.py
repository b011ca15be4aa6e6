"""Human review end to end: the finance team through the whole HTTP application."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import run_async
from tests.server.harness import OPERATOR, ServerHarness, expect_json, expect_problem, list_all

from handrail import teams
from handrail.api.operation import API_PREFIX
from handrail.testing.clock import ManualClock

INVOICE = "Invoice for 3 x 19.99 and 2 x 5.00, tax 20%"


class Office:
    """A server on which the finance team works."""

    def __init__(self, harness: ServerHarness) -> None:
        self.harness = harness

    async def file(self, title: str = INVOICE, **more: Any) -> dict[str, Any]:
        body = {"title": title, "workflow_id": "finance", **more}
        return expect_json(await self.harness.operator.post("/beads", json=body), 201)

    async def asked(self, run: str) -> dict[str, Any]:
        """The run's open question, once its work is done."""
        await self.harness.quiet()
        found = await list_all(self.harness.viewer, "/approvals", status="open")
        (one,) = [question for question in found if question["execution_id"] == run]
        return one

    async def answer(self, question: dict[str, Any], status: int = 200, **body: str) -> Any:
        path = f"/approvals/{question['id']}/answer"
        answer = await self.harness.operator.post(path, json=body)
        return (
            expect_json(answer)
            if status == 200
            else expect_problem(answer, status, answer.json()["code"])
        )

    async def run(self, run: str) -> dict[str, Any]:
        return expect_json(await self.harness.viewer.get(f"/executions/{run}"))


def play(tmp_path: Path, story: Any) -> None:
    async def whole() -> None:
        harness = ServerHarness(f"sqlite:///{tmp_path / 'finance.db'}", ManualClock())
        async with harness.opened():
            await teams.install_teams(harness.engine, ["finance"])
            await story(Office(harness))

    run_async(whole())


@pytest.mark.requirement("R1.1", "R1.2", "R1.3", "R3.2", "R3.3", "R3.4", "R4.2", "R4.5")
def test_a_result_is_shown_and_ok_completes_the_task(tmp_path: Path):
    async def story(office: Office) -> None:
        bead = await office.file()
        question = await office.asked(bead["execution_id"])
        assert question["type"] == "clarification_request"
        assert question["result"].splitlines()[-1] == "total 83.96"
        assert (question["approvers"], question["waits_for"]) == (["operator"], ["operator"])
        done = await office.answer(question, text="Looks good to me, thanks!")
        assert done["approval"]["by"] == OPERATOR
        assert done["execution"]["terminal_status"] == "done_success"
        run = await office.run(bead["execution_id"])
        assert [one["result"] for one in run["iterations"]] == [question["result"]]
        closed = expect_json(await office.harness.viewer.get(f"/beads/{bead['id']}"))
        assert closed["status"] == "closed"

    play(tmp_path, story)


@pytest.mark.requirement("R1.4", "R2.1", "R2.2", "R2.3", "R2.4", "R4.3", "R4.4")
def test_a_revision_goes_to_the_planner_with_everything_and_may_change_the_specialist(
    tmp_path: Path,
):
    async def story(office: Office) -> None:
        bead = await office.file(description="For Acme.\n" + "Long terms. " * 500)
        run = bead["execution_id"]
        first = await office.asked(run)
        said = ["  use 7% tax, please \n\t(as agreed)  ", "rather an audit, limit 50"]
        await office.answer(first, decision="revise", text=said[0])
        second = await office.asked(run)
        assert "tax 7% 4.90" in second["result"]
        expect_problem(
            await office.harness.operator.post(
                f"/approvals/{first['id']}/answer", json={"decision": "approve"}
            ),
            409,
            "not_open",
        )
        body = b"entry,amount,receipt\n1,60.50,yes\n2,10.10,\n"
        path = f"/beads/{bead['id']}/files?name=entries.csv"
        assert (await office.harness.operator.post(path, content=body)).status_code == 201
        await office.answer(second, text=said[1])
        third = await office.asked(run)
        assert third["result"].splitlines()[:3] == [
            "entry 1: 60.50 is above the limit of 50.00",
            "entry 2: receipt missing",
            "2 findings in 2 entries",
        ]
        await office.answer(third, text="OK")
        view = await office.run(run)
        kept = view["iterations"]
        assert [one["n"] for one in kept] == [1, 2, 3]
        assert [one["agent"] for one in kept] == ["invoice", "invoice", "audit"]
        assert [one["text"] for one in kept] == [*said, "OK"]
        assert kept[0]["task"].startswith(INVOICE)
        assert "Long terms. " * 500 in kept[0]["task"]
        assert [one["task"] for one in kept[1:]] == said
        assert [one["result"] for one in kept] == [
            first["result"],
            second["result"],
            third["result"],
        ]
        handed = [(one["from"], one["to"]) for one in view["handoff_sequence"]]
        assert handed[2:4] == [("planner", "invoice"), ("invoice", "review")]
        assert handed[4:] == [("planner", "audit"), ("audit", "review")]

    play(tmp_path, story)


@pytest.mark.requirement("R2.2")
def test_the_planner_is_given_every_iteration_in_full(tmp_path: Path):
    async def whole() -> None:
        harness = ServerHarness(f"sqlite:///{tmp_path / 'finance.db'}", ManualClock())
        async with harness.opened():
            office = Office(harness)
            await harness.engine.define(teams.load_builtin("finance"), by="test")
            agent = harness.agent
            roles = ["planner", "invoice"]
            expect_json(await agent.post("/agents", json={"id": "coder-1", "roles": roles}), 201)
            bead = await office.file("Invoice for 1 x 1")
            long = ["result " * 1_000, "another " * 1_000]
            for n, text in enumerate(long):
                for outcome in ({"to": "invoice"}, {"to": "review", "text": text}):
                    given = expect_json(
                        await agent.post("/dispatches/claim", json={"agent_id": "coder-1"})
                    )
                    if given["agent"] == "planner":
                        assert [one["result"] for one in given["iterations"]] == long[:n]
                        assert [one["text"] for one in given["iterations"]] == [
                            f"revision {one} " * 500 for one in range(n)
                        ]
                    body = {"outcome": "handoff", "reason": "r", "fence": given["fence"], **outcome}
                    expect_json(await agent.post(f"/dispatches/{given['id']}/result", json=body))
                question = await office.asked(bead["execution_id"])
                assert question["result"] == text
                await office.answer(question, decision="revise", text=f"revision {n} " * 500)

    run_async(whole())


@pytest.mark.requirement("R3.1", "R3.2")
def test_a_task_may_skip_review_or_require_it(tmp_path: Path):
    async def story(office: Office) -> None:
        skipped = await office.file(review="skip")
        required = await office.file(review="required")
        await office.harness.quiet()
        run = await office.run(skipped["execution_id"])
        assert (run["terminal_status"], run["final_agent"]) == ("done_success", "invoice")
        open_ones = await list_all(office.harness.viewer, "/approvals", status="open")
        assert [one["execution_id"] for one in open_ones] == [required["execution_id"]]

    play(tmp_path, story)


@pytest.mark.requirement("R4.2")
def test_words_that_could_mean_either_are_asked_again(tmp_path: Path):
    async def story(office: Office) -> None:
        bead = await office.file()
        question = await office.asked(bead["execution_id"])
        for text in ("no", "wait", "cancel", "hm", "?", ""):
            found = await office.answer(question, 422, text=text)
            assert found["code"] == "ambiguous_answer"
        assert (await office.asked(bead["execution_id"]))["id"] == question["id"]
        done = await office.answer(question, text="ok, but change the tax to 5%")
        assert done["approval"]["decision"] == "revise"
        again = await office.asked(bead["execution_id"])
        assert "tax 5% 3.50" in again["result"]

    play(tmp_path, story)


@pytest.mark.requirement("R5.1", "R5.2", "R5.3", "R5.4", "R5.5")
def test_fifty_revisions_in_a_row_pass_with_the_default_limits(tmp_path: Path):
    async def story(office: Office) -> None:
        bead = await office.file("Invoice for 2 x 50")
        run = bead["execution_id"]
        for n in range(1, 51):
            question = await office.asked(run)
            await office.answer(question, text=f"use {n}% tax")
        question = await office.asked(run)
        assert question["result"].splitlines()[-2:] == ["total 150.00", "revised: use 50% tax"]
        await office.answer(question, text="👍")
        view = await office.run(run)
        assert view["terminal_status"] == "done_success"
        assert len(view["iterations"]) == 51
        assert [one["text"] for one in view["iterations"]][:-1] == [
            f"use {n}% tax" for n in range(1, 51)
        ]
        for n, one in enumerate(view["iterations"][1:], 1):
            assert f"tax {n}% {n}.00" in one["result"]

    play(tmp_path, story)


def test_tables_of_the_bead_are_read_through_the_engine(tmp_path: Path):
    async def story(office: Office) -> None:
        operator = office.harness.operator
        bead = expect_json(await operator.post("/beads", json={"title": "Close May 2026"}), 201)
        for name, text in (
            ("ledger.csv", "reference,date,amount\nR1,2026-05-02,10.00\n"),
            ("bank.csv", "\ufeffreference,date,amount\nR1,2026-05-02,12.00\n"),
        ):
            path = f"/beads/{bead['id']}/files?name={name}"
            assert (await operator.post(path, content=text.encode())).status_code == 201
        path = f"/beads/{bead['id']}/executions"
        begun = expect_json(await operator.post(path, json={"workflow_id": "finance"}), 201)
        question = await office.asked(begun["id"])
        assert (
            "    R1: ledger 10.00, bank 12.00, difference -2.00" in question["result"].splitlines()
        )

    play(tmp_path, story)


@pytest.mark.requirement("R3.4")
def test_a_review_by_link_loops_and_completes(tmp_path: Path):
    async def story(office: Office) -> None:
        bead = await office.file()
        run = bead["execution_id"]
        for text in ("use 10% tax", "OK"):
            question = await office.asked(run)
            path = f"/approvals/{question['id']}/links"
            made = expect_json(await office.harness.operator.post(path, json={}), 201)
            link = made["path"].removeprefix(API_PREFIX)
            expect_json(await office.harness.nobody.post(link, json={"text": text}))
        view = await office.run(run)
        assert view["terminal_status"] == "done_success"
        assert "tax 10% 7.00" in view["iterations"][1]["result"]

    play(tmp_path, story)


def test_many_reviews_wait_and_end_independently(tmp_path: Path):
    async def story(office: Office) -> None:
        beads = [await office.file(f"Invoice for {n} x 10") for n in range(1, 21)]
        await office.harness.quiet()
        questions = await list_all(office.harness.viewer, "/approvals", status="open")
        assert len(questions) == 20
        await asyncio.gather(*(office.answer(one, text="ok") for one in questions[:10]))
        open_ones = await list_all(office.harness.viewer, "/approvals", status="open")
        assert {one["id"] for one in open_ones} == {one["id"] for one in questions[10:]}
        assert len(beads) == 20

    play(tmp_path, story)
