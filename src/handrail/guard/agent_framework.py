"""Microsoft Agent Framework under guard: a workflow or an agent, watched from inside its executors.

    team = guarded(workflow)
    await team.run("draft the contract")

An executor that is invoked has the turn, from the executor that sent to it. Handoffs are counted
along the longest way: executors beside each other, also in sub-workflows, are handed to at once.
Agents that executors hold tell their model's answers and their tools through middleware; of agents
that run none that stands in what they send. An executor that is refused does not begin. The
framework has no hook around executors: `execute` and the runner's `add_event` are wrapped in place,
stay so, and do nothing else outside a guarded run.

After a stop messages on their way and open requests are those from before the run, so that the
workflow can be run again at once. Its state and what its executors keep stay as they are.

What a stop leaves: a `WorkflowRunResult` with the events so far, or an `AgentResponse` with the
messages so far, as `partial`.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import NoReturn

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask_async, is_yes
from handrail.guard.watch import END, Theirs, Watch, framework, streaming, text_of, watching

EXTRA = "agent-framework"
INTERNAL = "internal:"
"""What the framework calls the source of a workflow's input, and of an answer to it."""


class GuardedTeam:
    """A workflow, or an agent, with a guard around it."""

    def __init__(self, team: Theirs, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name

    def run(self, message: Theirs = None, *, stream: bool = False, **options: Theirs) -> Theirs:
        """As `team.run(message)`, or `team.run(message, stream=True)`; raises `Stopped` when a rule
        ends the run."""
        if not stream:
            return self._result(message, options)
        begun = list[Theirs]()
        made: Theirs = framework("agent_framework", EXTRA).ResponseStream

        def last(_: object) -> Theirs:
            return begun[0].get_final_response()

        return made(self._drawn(message, options, begun), finalizer=last)

    async def _result(self, message: Theirs, options: dict[str, Theirs]) -> Theirs:
        with watching(self.guard, self.name, message) as watch:
            run = await _begun(watch, self.team)
            with run.here():
                try:
                    watch.partial = await self.team.run(message, **options)
                    async for answers in _answers(watch):
                        again = {**options, "checkpoint_id": None, "responses": answers}
                        watch.partial = await self.team.run(**again)
                    run.ended(watch.partial)
                except Exception:
                    if watch.stop is None:
                        raise
            await run.left()
        return watch.partial

    async def _drawn(
        self, message: Theirs, options: dict[str, Theirs], begun: list[Theirs]
    ) -> AsyncIterator[Theirs]:
        with streaming(self.guard, self.name, message) as watch:
            run = await _begun(watch, self.team)
            stream: Theirs = self.team.run(message, stream=True, **options)
            begun.append(stream)
            try:
                while True:
                    with watch.here(), run.here():
                        piece = await anext(stream, END)
                    if piece is END:
                        break
                    yield piece
                run.ended(None if run.tells else await stream.get_final_response())
                watch.step()  # so that a stop by the last answer has what there is, too
            except Exception:
                if watch.stop is None:
                    raise
            finally:
                await _close(stream)
            await run.left()


async def _close(stream: Theirs) -> None:
    """A stream that nobody holds any more is closed by the event loop, in a context where the
    framework cannot reset its variables. That is the last thing it does, and no failure."""
    try:
        await stream.close()
    except ValueError as error:
        if "different Context" not in str(error):
            raise


def guarded(team: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedTeam:
    """`team`: a workflow, an agent, or a workflow as an agent. What a workflow requests is asked of
    people through the server that records the run; without one, or of another type than a text, a
    yes or no, or a tool's approval, the workflow's own result says so, as ever."""
    theirs = framework("agent_framework", EXTRA)
    if isinstance(team, (theirs.FunctionalWorkflow, theirs.FunctionalWorkflowAgent)):
        instead = "build it with WorkflowBuilder, or guard the agents that it runs"
        raise NotImplementedError(f"a functional workflow cannot be guarded; {instead}")
    return GuardedTeam(team, guard or Guard(), name or team.name or "workflow")


async def _answers(watch: Watch) -> AsyncIterator[dict[str, Theirs]]:
    """What people answer to a workflow's requests, as often as they may be asked. Nobody is asked
    for one answer where others are not theirs to give."""
    for _ in range(ASKS_MAX):
        requests: list[Theirs] = getattr(watch.partial, "get_request_info_events", list)()
        answers = dict[str, Theirs]()
        for event in requests if all(_can_be_asked(one) for one in requests) else ():
            if not watch.agent:  # a request out of a checkpoint: nobody has had the turn
                watch.turn(event.source_executor_id, source="")
            reply = await ask_async(watch, _question(event))
            if reply is None:
                return
            answers[event.request_id] = _meant(event, reply)
        if not answers:
            return
        yield answers


def _can_be_asked(event: Theirs) -> bool:
    return _is_approval(event) or event.response_type in (str, bool)


def _is_approval(event: Theirs) -> bool:
    return getattr(event.data, "type", "") == "function_approval_request"


def _question(event: Theirs) -> str:
    if not _is_approval(event):
        return text_of(event.data)
    call = event.data.function_call
    return f"{event.source_executor_id} wants to call {call.name}({text_of(call.arguments)})"


def _meant(event: Theirs, reply: Theirs) -> Theirs:
    """From a person's reply to what the workflow is answered."""
    if _is_approval(event):
        return event.data.to_function_approval_response(is_yes(reply))
    return is_yes(reply) if event.response_type is bool else reply.text or "yes"


class _Run:
    """One guarded run: who has run in it, how deep, and what was in flight before it."""

    def __init__(self, watch: Watch, team: Theirs) -> None:
        self.watch = watch
        self.deepest = 0
        """Handoffs on the longest way so far."""
        self.over: dict[str, _Part] = {}
        """By executor, its last part that is over."""
        self.seen: list[Theirs] = []
        """Events of the outermost workflow, or messages of an agent that is on its own."""
        self.workflows = dict[str, Theirs]()
        self.tells = _hook(team, self.workflows)
        self.before: list[_OnTheWay] = []
        self.root = _Part(self, "" if self.workflows else team.name or "agent", "", None, 0)
        if self.root.name:
            watch.turn(self.root.name, source="")

    @contextmanager
    def here(self) -> Generator[None]:
        token = _part.set(self.root)
        try:
            yield
        finally:
            _part.reset(token)

    def began(
        self, outer: "_Part", executor: str, sender: str, sources: list[str], message: Theirs
    ) -> "_Part":
        """The executor has the turn. The first in a workflow has it from the executor that runs
        the workflow; who is answered goes on where it was, or where that executor is by now."""
        inside = f"{outer.name}/" if outer.name else ""
        name, over = inside + executor, self.over
        source = sources[0]
        if source.startswith(INTERNAL):
            deep, source = outer.deep, outer.name
            if name in over and getattr(message, "original_request_info_event", None) is not None:
                deep = max(deep, over[name].deep) - 1
        elif len(sources) == 1:
            source = inside + source
            deep, source = over[source].end if source in over else (outer.deep, source)
        else:
            deep, source = self._latest(outer, [inside + one for one in sources])
        deep += 1
        if deep > self.deepest:
            self.deepest = deep
            self.watch.turn(name, source=source)
        else:
            self.watch.resume(name)
        return _Part(self, name, sender, outer, deep)

    def _latest(self, outer: "_Part", sources: list[str]) -> tuple[int, str]:
        """Of several that sent together, the deepest; of those, always the same."""
        over = self.over
        ends = [over[one].end if one in over else (outer.deep, one) for one in sources]
        return min(ends, key=lambda end: (-end[0], end[1]))

    def ended(self, response: Theirs) -> None:
        """The framework has come to its end; of an agent alone that tells of nothing before, here
        is what it did."""
        if not self.tells:
            _did(self.root, response)
        self.root.settle()

    async def left(self) -> None:
        """After a stop: what there is, and workflows that can be run again."""
        if self.watch.stop is None:
            return
        theirs = framework("agent_framework", EXTRA)
        if self.workflows:
            self.watch.partial = theirs.WorkflowRunResult(self.seen)
        else:
            self.watch.partial = theirs.AgentResponse(messages=self.seen)
        for before in self.before:
            await before.put_back()


async def _begun(watch: Watch, team: Theirs) -> _Run:
    run = _Run(watch, team)
    for workflow in run.workflows.values():
        requests = await workflow._runner.context.get_pending_request_info_events()
        run.before.append(_OnTheWay(workflow, requests))
    return run


class _OnTheWay:
    """What a workflow keeps from one run for the next: requests that are open, messages that wait
    for others in a fan-in, or for an answer in the executor of an agent."""

    def __init__(self, workflow: Theirs, requests: dict[str, Theirs]) -> None:
        kind: type[Theirs] = framework("agent_framework", EXTRA).AgentExecutor
        agents = [one for one in workflow.executors.values() if isinstance(one, kind)]
        self.workflow, self.requests, self.status = workflow, requests, workflow.status
        self.waiting = [(edge, edge.snapshot_state()) for edge in workflow._runner._edge_runners]
        self.unanswered = [(one, _unanswered(one.__dict__)) for one in agents]

    async def put_back(self) -> None:
        workflow, context = self.workflow, self.workflow._runner.context
        checkpoint: Theirs = framework("agent_framework", EXTRA).WorkflowCheckpoint(
            workflow_name=workflow.name,
            graph_signature_hash=workflow.graph_signature_hash,
            pending_request_info_events=self.requests,
        )
        await context.apply_checkpoint(checkpoint)
        await context.drain_events()  # the requests, of which it has told before
        for edge, messages in self.waiting:
            edge.restore_state(messages)
        for executor, kept in self.unanswered:
            executor.__dict__.update(kept)
        workflow._status = self.status


def _unanswered(held: dict[str, Theirs]) -> dict[str, Theirs]:
    """Of what the executor of an agent holds, what is on its way to the agent."""
    return {name: copy(held[name]) for name in held if name.startswith(("_cache", "_pending"))}


class _Part:
    """What one executor does from being invoked to its end, or an agent on its own. The guard is
    told of each answer of a model together with the tools it called, so that those of others
    beside it do not come in between."""

    __slots__ = ("answer", "calls", "deep", "end", "name", "outer", "run", "sender")

    def __init__(self, run: _Run, name: str, sender: str, outer: "_Part | None", deep: int) -> None:
        self.run, self.name, self.sender, self.outer, self.deep = run, name, sender, outer, deep
        """`sender`: whose answers among what is sent are to be told of."""
        self.end = (deep, name)
        """How deep it went, and who was last in it: somebody in a workflow that it ran, or it."""
        self.calls: list[tuple[str, object, object, object]] = []
        self.answer: tuple[str, int] | None = None

    def settle(self) -> None:
        """Tells of what has been answered and called since."""
        if self.answer is None and not self.calls:
            return
        watch = self.run.watch
        if watch.open or watch.agent != self.name:
            watch.resume(self.name)
        if self.calls:
            for call in self.calls:
                watch.called(*call)
            self.calls = []
        if self.answer is not None:
            watch.answered(*self.answer)
            self.answer = None

    def over(self) -> None:
        """Whoever was last in it hands over."""
        if self.answer is not None or self.calls:
            self.settle()
        end, outer = self.end, self.outer
        self.run.over[self.name] = self
        if outer is not None and end[0] > outer.end[0]:
            outer.end = end

    def refuse(self) -> NoReturn:
        """Ends the framework's run by the error that none of its layers makes a result of; the
        stop itself is raised when the framework has come to rest."""
        raise framework("agent_framework", EXTRA).MiddlewareFailure("the guarded run is over")


_part: ContextVar[_Part | None] = ContextVar("handrail_agent_framework_part", default=None)
"""Whose part this is, in a guarded run."""


def _hook(held: Theirs, workflows: dict[str, Theirs]) -> bool:
    """From now on it tells of what it does, if it is a workflow or an agent that can be made to.
    Workflows that are found, also inside it, are added."""
    workflow, workflow_agent, agent = _kinds()
    if isinstance(held, workflow_agent):
        held = held.workflow
    if isinstance(held, workflow):
        if held.id not in workflows:
            workflows[held.id] = held
            _hook_workflow(held, workflows)
        return True
    if isinstance(held, agent):
        _hook_agent(held)
        return True
    return False


@functools.cache
def _kinds() -> tuple[type[Theirs], ...]:
    theirs = framework("agent_framework", EXTRA)
    return theirs.Workflow, theirs.WorkflowAgent, theirs.AgentMiddlewareLayer


def _hook_workflow(workflow: Theirs, workflows: dict[str, Theirs]) -> None:
    """Its executors tell when they are invoked, and its runner what they add."""
    context = workflow._runner.context
    if not _is_ours(context.add_event):
        context.add_event = _heard(context.add_event)
    for executor in list(workflow.executors.values()):
        tells = [_hook(held, workflows) for held in list(executor.__dict__.values())]
        if not _is_ours(executor.execute):
            executor.execute = _executed(executor, "" if any(tells) else executor.id)


def _is_ours(hook: Theirs) -> bool:
    return getattr(hook, "__module__", "") == __name__


def _executed(executor: Theirs, sender: str) -> Theirs:
    """An executor's `execute`, in place of its own."""
    theirs, name = executor.execute, executor.id

    async def execute(
        message: Theirs,
        sources: list[str],
        state: Theirs,
        context: Theirs,
        trace_contexts: Theirs = None,
        source_span_ids: Theirs = None,
    ) -> None:
        outer = _part.get()
        if outer is None:
            await theirs(message, sources, state, context, trace_contexts, source_span_ids)
            return
        run = outer.run
        part = run.began(outer, name, sender, sources, message)
        if run.watch.stop is not None:
            part.refuse()
        _part.set(part)
        try:
            await theirs(message, sources, state, context, trace_contexts, source_span_ids)
        finally:
            _part.set(outer)
            part.over()

    return execute


def _heard(theirs: Theirs) -> Theirs:
    """A runner's `add_event`, in place of its own."""

    def add_event(event: Theirs) -> Awaitable[None]:
        part = _part.get()
        if part is not None and part.outer is not None:
            if part.outer is part.run.root:
                part.run.seen.append(event)
            if part.sender and event.type == "executor_completed" and event.data:
                _told(part, event.data)
        return theirs(event)

    return add_event


def _told(part: _Part, sent: list[Theirs]) -> None:
    """Answers of the sender's own agent among what it sent; not those that it passed on."""
    for one in sent:
        response = getattr(one, "agent_response", None)
        if response is not None and one.executor_id == part.sender:
            if part.answer is not None:
                part.settle()
            _did(part, response)


def _did(part: _Part, response: Theirs) -> None:
    """What an agent that tells of nothing before has said, and which tools it has called."""
    said = list[str]()
    calls = dict[str, Theirs]()
    for message in response.messages:
        for content in message.contents:
            kind = content.type
            if kind == "text":
                said.append(content.text)
            elif kind == "function_call":
                calls[content.call_id] = content
            elif kind == "function_result" and content.call_id in calls:
                call = calls[content.call_id]
                part.calls.append((call.name, call.arguments, content.result, content.exception))
    _answered(part, response, " ".join(said))


def _answered(part: _Part, response: Theirs, text: str | None = None) -> None:
    usage: dict[str, Theirs] | None = response.usage_details
    said = response.text if text is None else text
    part.answer = said, (usage.get("total_token_count") or 0) if usage else 0
    if part.outer is None:
        part.run.seen.extend(response.messages)


def _hook_agent(agent: Theirs) -> None:
    """The agent tells of its models and its tools, before its own middleware has its say."""
    hooks = _hooks()
    held: list[Theirs] = list(agent.middleware or ())
    if not any(isinstance(one, type(hooks[0])) for one in held):
        agent.middleware = [*hooks, *held]


@functools.cache
def _hooks() -> tuple[Theirs, ...]:
    """Middleware; it can be made only where the framework is installed."""
    theirs = framework("agent_framework", EXTRA)
    chat = type("HandrailModels", (_Models, theirs.ChatMiddleware), {})
    function = type("HandrailTools", (_Tools, theirs.FunctionMiddleware), {})
    return chat(), function()


class _Models:
    """What models are asked, and what they answer."""

    async def process(self, context: Theirs, call_next: Callable[[], Awaitable[None]]) -> None:
        part = _part.get()
        if part is not None:
            part.settle()
            if part.run.watch.step() is not None:
                part.refuse()
            if context.stream:
                context.stream_result_hooks.append(functools.partial(_answered, part))
        await call_next()
        if part is not None and not context.stream:
            _answered(part, context.result)


class _Tools:
    """What tools are given, and what they return or raise."""

    async def process(self, context: Theirs, call_next: Callable[[], Awaitable[None]]) -> None:
        part, name, given = _part.get(), context.function.name, context.arguments
        try:
            await call_next()
        except Exception as error:
            if part is not None and not _is_way_out(error):
                wrong = f"{type(error).__name__}: {error}"
                part.calls.append((name, given, "", wrong))
            raise
        if part is not None:
            part.calls.append((name, given, _found(context.result), None))


def _is_way_out(error: Exception) -> bool:
    """Middleware that ends a run or a turn, or somebody who has to be asked: no failure."""
    theirs = framework("agent_framework", EXTRA)
    ways = (theirs.MiddlewareTermination, theirs.MiddlewareFailure)
    return isinstance(error, ways) or type(error).__name__ == "UserInputRequiredException"


def _found(result: Theirs) -> object:
    """What a tool returned, in words where it has some."""
    if isinstance(result, list):
        return [getattr(one, "text", None) or one for one in result]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return result
