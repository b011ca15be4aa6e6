"""The worker against a real server: what it takes on, what it gives up, what it survives."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.conftest import ONE
from tests.client.live_server import Server, free_port
from tests.kernel.driven_run import chain, node, team
from tests.patience import wait_until_async

import handrail
from handrail import Worker
from handrail.client import worker as worker_module
from handrail.client.errors import (
    AccessDeniedError,
    ConflictError,
    error_from_response,
    unreachable_error,
)
from handrail.client.worker import EndlessRetry

ROLE = "backend-engineer"
PATIENCE = 60.0


def go(work: Awaitable[None]) -> None:
    """The test, and not for ever."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(bounded())


class Rig:
    """A worker beside what a test does with its server; the server is asked on threads."""

    def __init__(self, server: Server, admin_client: Any) -> None:
        self.server, self.admin_client = server, admin_client
        self.token = server.token("agent", "worker-1")

    def worker(self, **options: Any) -> Worker:
        return Worker(self.server.url, self.token, **{"heartbeat": 0.05, **options})

    async def filed(self, definition: dict[str, Any] = ONE, title: str = "x", **wanted: Any) -> str:
        await self.ask(self.admin_client.definitions.create, definition)
        name = definition["name"]
        bead = await self.ask(self.admin_client.beads.create, title, workflow_id=name, **wanted)
        return bead.execution_id

    async def ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(call, *args, **kwargs)

    async def ended(self, execution_id: str) -> Any:
        return await self.ask(self.admin_client.result, execution_id, timeout=PATIENCE)

    async def steps(self, execution_id: str) -> Any:
        return (await self.ask(self.admin_client.runs.list_steps, execution_id)).items

    async def heard(self, times: int) -> None:
        """Until the worker has said so often that it is alive."""
        seen = set[Any]()
        while len(seen) <= times:
            seen.add((await self.ask(self.admin_client.agents.get, "worker-1")).last_seen)

    async def busy(self) -> tuple[str, ...]:
        return (await self.ask(self.admin_client.agents.get, "worker-1")).current_work


@pytest.fixture
def rig(server: Server, admin_client: Any) -> Rig:
    return Rig(server, admin_client)


class At:
    """The worker at work, for as long as a block takes; then it is told to stop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    async def __aenter__(self) -> "asyncio.Task[None]":
        self.task = asyncio.create_task(self.worker.run())
        return self.task

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        await self.task


def test_a_worker_takes_a_run_to_its_end(rig: Rig):
    async def main() -> None:
        worker, seen = rig.worker(), list[Any]()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            seen.append(dispatch)
            return handrail.success(f"fixed: {dispatch.bead.title}", data={"severity": 1})

        execution = await rig.filed(title="500 on /invoices", context={"a": 1})
        async with At(worker):
            run = await rig.ended(execution)
        assert run.terminal_status == "done_success"
        (dispatch,) = seen
        assert dispatch.execution_id == execution
        assert (dispatch.node, dispatch.role, dispatch.attempt) == ("fix", ROLE, 1)
        assert dispatch.bead.context == {"a": 1}
        assert dispatch.allowed.outcomes == ("success", "failure", "ask")
        assert dispatch.history == ()
        (step,) = await rig.steps(execution)
        assert (step.agent, step.text, step.result.data) == (
            "worker-1", "fixed: 500 on /invoices", {"severity": 1},
        )  # fmt: skip

    go(main())


def test_a_function_that_is_not_async_has_a_thread_to_itself(rig: Rig):
    async def main() -> None:
        worker, names = rig.worker(), list[str]()

        @worker.agent(ROLE)
        def fix(dispatch: Any) -> dict[str, Any]:
            names.append(threading.current_thread().name)
            return {"outcome": "success", "text": "from a thread"}

        execution = await rig.filed()
        async with At(worker):
            await rig.ended(execution)
        assert names == [f"handrail-{ROLE}"]
        assert (await rig.steps(execution))[0].text == "from a thread"

    go(main())


def test_a_text_is_read_by_its_last_line(rig: Rig):
    async def main() -> None:
        worker = rig.worker(concurrency=2)
        worker.add(lambda _: "Have a look.\n\n**HANDOFF: b: all yours.**", "a")
        worker.add(lambda _: "Done.\nTERMINATE_WORKFLOW: it works", "b")
        execution = await rig.filed(team({"a": ["b"], "b": ["a"]}, terminator="b", name="duo"))
        async with At(worker):
            run = await rig.ended(execution)
        assert run.terminal_status == "done_success"
        assert [(one.from_, one.to, one.reason) for one in run.handoff_sequence] == [
            ("a", "b", "all yours")
        ]

    go(main())


@pytest.mark.requirement("K1")
def test_a_function_that_raises_gives_its_dispatch_back_with_the_reason(rig: Rig):
    async def main() -> None:
        worker, attempts = rig.worker(), list[int]()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            attempts.append(dispatch.attempt)
            if dispatch.attempt == 1:
                raise RuntimeError("no model today")
            if dispatch.attempt == 2:
                return {1, 2, 3}
            return handrail.success("third time lucky")

        execution = await rig.filed()
        async with At(worker):
            await rig.ended(execution)
        assert attempts == [1, 2, 3]
        first, second, third = await rig.steps(execution)
        assert (first.outcome, second.outcome, third.outcome) == ("lost", "lost", "success")
        assert "RuntimeError: no model today" in first.reason
        assert "returned a set" in second.reason

    go(main())


@pytest.mark.parametrize("error", [StopIteration, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("kind", ["async", "thread"])
def test_whatever_a_function_raises_is_its_own_attempt(
    rig: Rig, kind: str, error: type[BaseException]
):
    async def main() -> None:
        worker = rig.worker()

        def raises(dispatch: Any) -> Any:
            if dispatch.attempt == 1:
                raise error
            return handrail.success()

        async def raises_too(dispatch: Any) -> Any:
            return raises(dispatch)

        worker.add(raises_too if kind == "async" else raises, ROLE)
        execution = await rig.filed()
        async with At(worker):
            await rig.ended(execution)
        assert (await rig.steps(execution))[0].outcome == "lost"

    go(main())


def test_a_function_that_takes_no_dispatch_is_told_so(rig: Rig):
    async def main() -> None:
        worker = rig.worker()

        async def fix() -> Any:
            return handrail.success()

        worker.add(fix, ROLE)  # pyright: ignore[reportArgumentType] - that is the mistake
        execution = await rig.filed()
        async with At(worker):
            while len(steps := await rig.steps(execution)) < 2:
                await asyncio.sleep(0.01)
        assert "takes 0 positional arguments" in steps[0].reason

    go(main())


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_function_that_exits_loses_its_attempt_and_nothing_else(rig: Rig, kind: str):
    async def main() -> None:
        worker = rig.worker()

        def exits(dispatch: Any) -> Any:
            if dispatch.attempt == 1:
                raise SystemExit(3)
            return handrail.success()

        async def exits_too(dispatch: Any) -> Any:
            return exits(dispatch)

        worker.add(exits_too if kind == "async" else exits, ROLE)
        execution = await rig.filed()
        async with At(worker):
            await rig.ended(execution)
        assert "SystemExit: 3" in (await rig.steps(execution))[0].reason

    go(main())


def test_a_result_that_cannot_be_used_there_is_given_back(rig: Rig):
    async def main() -> None:
        worker = rig.worker()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            if dispatch.attempt == 1:
                return handrail.ask("")  # a question without a question
            if dispatch.attempt == 2:
                return handrail.success("x" * 11_000_000)
            return handrail.success()

        execution = await rig.filed()
        async with At(worker):
            await rig.ended(execution)
        first, second, _ = await rig.steps(execution)
        assert (first.outcome, second.outcome) == ("lost", "lost")
        assert "question" in first.reason
        assert "Too Large" in second.reason

    go(main())


@pytest.mark.requirement("H5.5")
def test_work_of_a_run_that_has_ended_is_cancelled(rig: Rig):
    async def main() -> None:
        worker = rig.worker(grace=0)
        began, cancelled = asyncio.Event(), asyncio.Event()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        execution = await rig.filed()
        async with At(worker):
            await began.wait()
            await rig.ask(rig.admin_client.runs.override, execution, "close", "enough")
            await cancelled.wait()
            # and the worker has room again
            began.clear()
            await rig.filed()
            await began.wait()

    go(main())


@pytest.mark.requirement("H5.5")
def test_what_a_thread_returns_for_an_ended_run_is_dropped_and_its_place_is_kept(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    async def main() -> None:
        worker = rig.worker()
        began, free = threading.Event(), threading.Event()
        served = list[str]()

        @worker.agent(ROLE)
        def fix(dispatch: Any) -> Any:
            served.append(dispatch.execution_id)
            began.set()
            free.wait(PATIENCE)
            return handrail.success()

        first = await rig.filed()
        async with At(worker):
            await rig.ask(began.wait)
            await rig.ask(rig.admin_client.runs.override, first, "close", "enough")
            second = await rig.filed()
            await wait_until_async(lambda: "dispatch_cancelled" in caplog.text)
            await rig.heard(3)
            assert served == [first]
            free.set()
            await rig.ended(second)
        assert served == [first, second]
        assert "result_dropped" not in caplog.text

    caplog.set_level(logging.INFO, "handrail.worker")
    go(main())


@pytest.mark.parametrize(("options", "most"), [({"concurrency": 3}, 3), ({}, 1)])
def test_never_more_at_once_than_it_is_told(rig: Rig, options: dict[str, int], most: int):
    async def main() -> None:
        worker = rig.worker(**options)
        at_once, seen = 0, list[int]()
        full = asyncio.Event()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            nonlocal at_once
            at_once += 1
            seen.append(at_once)
            if at_once == most:
                full.set()
            await full.wait()
            await asyncio.sleep(0)
            at_once -= 1
            return handrail.success()

        executions = [await rig.filed() for _ in range(8)]
        async with At(worker):
            for execution in executions:
                await rig.ended(execution)
        assert max(seen) == most

    go(main())


def test_a_function_has_a_bound_of_its_own(rig: Rig):
    async def main() -> None:
        worker = rig.worker(concurrency=4)
        at_once, seen = 0, list[int]()

        @worker.agent(ROLE, capacity=1)
        async def fix(dispatch: Any) -> Any:
            nonlocal at_once
            at_once += 1
            seen.append(at_once)
            await asyncio.sleep(0)
            at_once -= 1
            return handrail.success()

        executions = [await rig.filed() for _ in range(6)]
        async with At(worker):
            for execution in executions:
                await rig.ended(execution)
        assert max(seen) == 1

    go(main())


def test_a_worker_survives_a_restart_of_the_server_with_its_work_in_hand(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    async def main() -> None:
        worker = rig.worker()
        began, go_on = asyncio.Event(), asyncio.Event()
        runs = list[str]()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            runs.append(dispatch.execution_id)
            began.set()
            await go_on.wait()
            return handrail.success()

        first = await rig.filed()
        async with At(worker):
            await began.wait()
            await rig.ask(rig.server.stop)
            await wait_until_async(lambda: "server_lost" in caplog.text)
            go_on.set()
            await rig.ask(rig.server.start)
            await rig.ended(first)
            second = await rig.filed()
            await rig.ended(second)
        assert runs == [first, second]
        assert [one.outcome for one in await rig.steps(first)] == ["success"]
        told = [one.message.split()[0] for one in caplog.records if one.name == "handrail.worker"]
        assert told == ["worker_started", "server_lost", "server_back"]

    caplog.set_level(logging.INFO, "handrail.worker")
    go(main())


def test_a_line_that_is_lost_is_told_once_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
        line = EndlessRetry()
        away = unreachable_error("GET /me", ("http://a",), "refused", 8)
        answers: list[Exception | str] = [away, away, away, "there", away, away, conflict]

        async def call() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        assert await line.retry(call) == "there"
        with pytest.raises(ConflictError):
            await line.retry(call)

    conflict = error_from_response("GET /me", 409, b"")
    monkeypatch.setattr(worker_module, "RETRY_SECONDS_FIRST", 0.0)
    caplog.set_level(logging.INFO, "handrail.worker")
    go(main())
    told = [one.message.split()[0] for one in caplog.records]
    assert told == ["server_lost", "server_back", "server_lost", "server_back"]


def test_a_worker_waits_for_a_server_that_is_not_there_yet_and_can_be_stopped_meanwhile():
    async def main() -> None:
        worker = Worker(f"http://127.0.0.1:{free_port()}", "t", agent_id="a")
        worker.add(lambda _: "", ROLE)
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        worker.stop()
        await task

    go(main())


def test_a_worker_that_the_server_does_not_know_registers_again(rig: Rig):
    async def main() -> None:
        worker = rig.worker()
        began, cancelled = asyncio.Event(), asyncio.Event()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            if dispatch.attempt > 1:
                return handrail.success()
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        execution = await rig.filed()
        async with At(worker):
            await began.wait()
            await rig.ask(rig.admin_client.agents.remove, "worker-1")
            await cancelled.wait()
            await rig.ended(execution)
        assert [one.outcome for one in await rig.steps(execution)] == ["lost", "success"]

    go(main())


def test_a_worker_that_is_disabled_waits_until_it_is_enabled(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    async def main() -> None:
        worker = rig.worker()
        worker.add(lambda _: handrail.success(), ROLE)
        async with At(worker):
            await rig.ended(await rig.filed())
        await rig.ask(rig.admin_client.agents.enable, "worker-1", enabled=False)
        execution = await rig.filed()
        async with At(worker):
            await wait_until_async(lambda: "worker_disabled" in caplog.text)
            assert (await rig.ask(rig.admin_client.runs.get, execution)).status == "running"
            await rig.ask(rig.admin_client.agents.enable, "worker-1")
            await rig.ended(execution)
        assert caplog.text.count("worker_disabled") == 1

    caplog.set_level(logging.INFO, "handrail.worker")
    go(main())


def test_a_worker_that_is_stopped_while_it_waits_takes_nothing_away(rig: Rig):
    async def main() -> None:
        worker = rig.worker()
        worker.add(lambda _: handrail.success(), ROLE)
        execution = ""
        for _ in range(2):  # it can be used again
            async with At(worker):
                await rig.ended(await rig.filed())
                execution = await rig.filed()
                worker.stop()
        steps = await rig.steps(execution)
        assert [one.outcome for one in steps] in (["success"], [""], ["lost", ""])
        assert await rig.busy() == ()

    go(main())


def test_a_worker_told_to_stop_finishes_what_it_has_and_takes_nothing_new(rig: Rig):
    async def main() -> None:
        worker = rig.worker()
        began, go_on = asyncio.Event(), asyncio.Event()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            began.set()
            await go_on.wait()
            return handrail.success()

        first, second = await rig.filed(), await rig.filed()
        task = asyncio.create_task(worker.run())
        await began.wait()
        worker.stop()
        await asyncio.sleep(0)
        go_on.set()
        await task
        states = {
            one: (await rig.ask(rig.admin_client.runs.get, one)).status for one in (first, second)
        }
        assert sorted(states.values()) == ["ended", "running"]
        assert await rig.busy() == ()

    go(main())


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_what_takes_longer_than_the_grace_is_handed_back(rig: Rig, kind: str):
    async def main() -> None:
        worker = rig.worker(grace=0)
        began, never = threading.Event(), threading.Event()

        async def slow(dispatch: Any) -> Any:
            began.set()
            await asyncio.Event().wait()

        def slow_thread(dispatch: Any) -> Any:
            began.set()
            never.wait(PATIENCE)

        worker.add(slow if kind == "async" else slow_thread, ROLE)
        execution = await rig.filed()
        task = asyncio.create_task(worker.run())
        await rig.ask(began.wait)
        worker.stop()
        await task
        never.set()
        steps = await rig.steps(execution)
        assert (steps[0].outcome, steps[1].outcome) == ("lost", "")
        assert "the worker was stopped" in steps[0].reason
        assert await rig.busy() == ()

    go(main())


def test_a_worker_that_is_cancelled_stops_its_functions_at_once(rig: Rig):
    async def main() -> None:
        worker = rig.worker()
        began, cancelled = asyncio.Event(), asyncio.Event()

        @worker.agent(ROLE)
        async def slow(dispatch: Any) -> Any:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        await rig.filed()
        task = asyncio.create_task(worker.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()

    go(main())


def test_a_result_that_comes_too_late_is_dropped(rig: Rig, caplog: pytest.LogCaptureFixture):
    async def main() -> None:
        worker = rig.worker(heartbeat=PATIENCE)
        began, go_on = asyncio.Event(), asyncio.Event()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            began.set()
            await go_on.wait()
            return handrail.success()

        execution = await rig.filed()
        async with At(worker):
            await began.wait()
            await rig.ask(rig.admin_client.runs.override, execution, "close", "enough")
            go_on.set()
            await wait_until_async(lambda: "result_dropped" in caplog.text)
            second = await rig.filed()
            assert (await rig.ended(second)).terminal_status == "done_success"

    caplog.set_level(logging.INFO, "handrail.worker")
    go(main())


def test_a_token_that_is_refused_ends_the_worker(server: Server):
    async def main() -> None:
        worker = Worker(server.url, "hr_wrong")
        worker.add(lambda _: "", ROLE)
        with pytest.raises(AccessDeniedError, match="401"):
            await worker.run()
        limited = Worker(server.url, server.token("viewer", "vic"), agent_id="a")
        limited.add(lambda _: "", ROLE)
        with pytest.raises(AccessDeniedError, match="403"):
            await limited.run()

    go(main())


def test_a_worker_needs_functions_that_work_as_something():
    worker = Worker()
    with pytest.raises(ValueError, match="has no function"):
        asyncio.run(worker.run())
    with pytest.raises(ValueError, match="has no role"):
        worker.add(lambda _: "")
    with pytest.raises(ValueError, match="at least 1"):
        worker.add(lambda _: "", ROLE, capacity=0)
    worker.add(handrail.agent(ROLE)(lambda _: ""))
    with pytest.raises(ValueError, match="two functions work as"):
        worker.add(lambda _: "", ROLE)


def test_a_question_of_an_agent_comes_back_with_its_answer(rig: Rig):
    async def main() -> None:
        worker, heard = rig.worker(), list[str]()

        @worker.agent(ROLE)
        async def fix(dispatch: Any) -> Any:
            if not dispatch.answer:
                return handrail.ask("which branch?", "main", "next")
            heard.append(dispatch.answer)
            return handrail.success()

        execution = await rig.filed()
        async with At(worker):
            while not (
                found := (await rig.ask(rig.admin_client.approvals.list, status="open")).items
            ):
                await asyncio.sleep(0.01)
            assert found[0].options == ("main", "next")
            await rig.ask(
                rig.admin_client.approvals.answer, found[0].id, "next", digest=found[0].digest
            )
            await rig.ended(execution)
        assert heard == ["next"]

    go(main())


def test_a_worker_of_several_roles_has_a_function_for_each(rig: Rig):
    async def main() -> None:
        worker, said = rig.worker(concurrency=2), list[str]()

        @worker.agent(ROLE, "web-designer")
        async def make(dispatch: Any) -> Any:
            said.append(f"make {dispatch.node}")
            return handrail.success("made")

        @worker.agent("qa-engineer")
        def verify(dispatch: Any) -> Any:
            said.append(f"verify {dispatch.node} after {dispatch.history[-1].text}")
            return handrail.success()

        steps = (node("a"), node("b", role="web-designer"), node("c", role="qa-engineer"))
        execution = await rig.filed(chain(*steps, name="three"))
        async with At(worker):
            await rig.ended(execution)
        assert said == ["make a", "make b", "verify c after made"]

    go(main())
