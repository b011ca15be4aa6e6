"""Microsoft Agent Framework under guard: a workflow, watched through the events of its stream.

    team = guarded(workflow)
    await team.run("draft the contract")

An executor that is invoked has the turn, from an executor of the superstep before; of one superstep
each name counts once. What agents in it used, and the tools they called, stand in what they send. A
stop closes the stream, which cancels the executors that had begun.

What a stop leaves: a `WorkflowRunResult` with the events so far, as `partial`.
"""

from collections.abc import Iterator

from handrail.guard import Guard
from handrail.guard.watch import Theirs, Watch, framework, refuse_stream, watching

EXTRA = "agent-framework"


class GuardedWorkflow:
    """A workflow with a guard around it."""

    def __init__(self, workflow: Theirs, guard: Guard, name: str) -> None:
        self.workflow, self.guard, self.name = workflow, guard, name

    async def run(self, message: Theirs = None, **options: Theirs) -> Theirs:
        """As `workflow.run(message)`; raises `Stopped` when a rule ends the run."""
        if options.pop("stream", False):
            refuse_stream("workflow.run(stream=True)", "call `run` without it")
        result: type[Theirs] = framework("agent_framework", EXTRA).WorkflowRunResult
        with watching(self.guard, self.name, message) as watch:
            turns, seen = _Turns(watch), list[Theirs]()
            async with self.workflow.run(message, stream=True, **options) as stream:
                async for event in stream:
                    seen.append(event)
                    TOLD.get(event.type, _Turns.nothing)(turns, event)
                    if watch.stop is not None:
                        break
                watch.partial = result(seen)
                if watch.stop is None:
                    watch.partial = await stream.get_final_response()
        return watch.partial


def guarded(workflow: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedWorkflow:
    return GuardedWorkflow(workflow, guard or Guard(), name or workflow.name or "workflow")


class _Turns:
    """From events to turns. `before` are the executors of the superstep before."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.before = ""
        self.names: list[str] = []

    def superstep(self, event: Theirs) -> None:
        self.before, self.names = min(self.names, default=self.before), []

    def invoked(self, event: Theirs) -> None:
        if event.executor_id not in self.names:
            self.names.append(event.executor_id)
            self.watch.turn(event.executor_id, source=self.before)

    def completed(self, event: Theirs) -> None:
        for response in _responses(event.data):
            usage: dict[str, Theirs] = response.usage_details or {}
            calls = dict[str, Theirs]()
            for part in (part for message in response.messages for part in message.contents):
                if part.type == "function_call":
                    calls[part.call_id] = part
                elif part.type == "function_result" and part.call_id in calls:
                    call = calls[part.call_id]
                    self.watch.called(call.name, call.arguments, part.result, part.exception)
            self.watch.answered(text=response.text, tokens=usage.get("total_token_count") or 0)
            self.watch.step()

    def nothing(self, event: Theirs) -> None:
        """An event that tells the guard nothing."""


def _responses(sent: object) -> Iterator[Theirs]:
    """Answers of agents among what an executor sent."""
    for one in sent if isinstance(sent, list) else ():  # pyright: ignore[reportUnknownVariableType] - whatever was sent
        response = getattr(one, "agent_response", None)  # pyright: ignore[reportUnknownArgumentType]
        if response is not None:
            yield response


TOLD = {
    "superstep_started": _Turns.superstep,
    "executor_invoked": _Turns.invoked,
    "executor_completed": _Turns.completed,
}
