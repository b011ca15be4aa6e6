"""Helpdesk: by rules and a runbook, or with a language model; what was resolved is remembered.

Offline, words choose the specialty and the specialty's entry of the runbook is the proposal. A
ticket like one that was resolved before is answered from memory. Nothing that failed is proposed
again: a ticket that is opened again gets neither the answer it had from memory nor the entries that
were tried.

Endings: success after work, success from memory (the same ticket again), partial when no specialty
or no entry fits. `context.demo`: "stuck" (the orchestrator asks the same worker for ever), "ask"
(ticketing asks a person first; rejecting that closes the run).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.likeness import score, signature
from handrail.engine.memory import ALIKE
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.teams.runbook import classify, proposed, runbook, told
from handrail.teams.scripted import Agent, ask, demo, end, hand

SPECIALTIES = tuple(runbook().vocabulary)
NONE = "none"
"""Stands for a resolution where there is none."""
INSTRUCTIONS = {
    "orchestrator": "Ask memory first. If memory has a hit, hand to ticketing. Else let ticketing "
    "analyze, then the specialist, then memory to keep the resolution, then summarization, then "
    "ticketing to close. If nothing fits, set `data.resolution` to 'none' and hand to ticketing.",
    "memory": "Call `find` when you are asked whether a ticket like this is known, `keep` when you "
    "are asked to keep a resolution. If what `find` gives answers this very ticket, set "
    "`data.memory` to 'hit' and `data.resolution` to it; else set `data.memory` to 'miss'.",
    "ticketing": "When you analyze, set `data.specialty` to one of "
    f"{', '.join(SPECIALTIES)}, or to 'unknown'. When you close, say the resolution, and what "
    "remains if the ticket is only partly resolved.",
    "summarization": "Write for the person who filed the ticket, in a few plain sentences.",
    **dict.fromkeys(
        SPECIALTIES,
        "Propose checks and steps in order, and set `data.resolution` to them. If you do not "
        "know, set it to 'none'.",
    ),
}
"""What a language model is told beside the rules of the definition."""


class Known(NamedTuple):
    """A ticket that was resolved before."""

    title: str
    resolution: str
    score: float
    memory_id: str = ""


def staff() -> dict[str, Agent]:
    """The team's agents for one sitting: what they remember is gone with them."""
    kept: dict[str, Known] = {}

    def memory(dispatch: Dispatch) -> Result:
        title, text = dispatch.bead.title, dispatch.bead.description
        mine = signature(title, text)
        if dispatch.task == "store":
            kept[mine] = Known(title, _resolution(dispatch), 1.0)
            return _stored(dispatch)
        found = [one._replace(score=score(signed, mine)) for signed, one in kept.items()]
        best = max(found, key=lambda one: one.score, default=None)
        return _found(dispatch, best if best is not None and best.score >= ALIKE else None)

    return {**_others(), "memory": memory}


def employed(
    engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> dict[str, Agent]:
    """The team's agents on an engine, whose memory is theirs."""
    del workspaces  # a helpdesk changes no files
    if model:
        return _with_model(engine, model)

    async def memory(dispatch: Dispatch) -> Result:
        if dispatch.task == "store":
            kept = await _keep(engine, dispatch, _resolution(dispatch))
            return _stored(dispatch, kept)
        best = await _find(engine, dispatch)
        return _found(dispatch, best)

    at_once = {role: _at_once(agent) for role, agent in _others().items()}
    return cast("dict[str, Agent]", {**at_once, "memory": memory})


def _at_once(agent: Agent) -> Callable[[Dispatch], Awaitable[Result]]:
    """An agent that is done in a moment needs no thread."""

    async def work(dispatch: Dispatch) -> Result:
        return agent(dispatch)

    return work


def _others() -> dict[str, Agent]:
    return {
        "orchestrator": _orchestrator,
        "ticketing": _ticketing,
        "summarization": _summarization,
        **dict.fromkeys(SPECIALTIES, _worker),
    }


# Who comes next


def _orchestrator(dispatch: Dispatch) -> Result:
    context = dispatch.bead.context
    specialty, resolution = context.get("specialty", ""), _resolution(dispatch)
    match dispatch.phase:
        case "memory_check_pending":
            return hand("memory", "was a ticket like this resolved before?")
        case "memory_checked" if context.get("memory") == "stored":
            return hand("summarization", "the resolution is kept; write the summary")
        case "memory_checked" if context.get("memory") == "hit":
            return hand("ticketing", "resolved before: close with the known resolution")
        case "memory_checked":
            return hand("ticketing", "nothing known: analyze the ticket")
        case "ticket_analyzed" if specialty in SPECIALTIES:
            return hand(specialty, f"the ticket concerns {specialty}")
        case "ticket_analyzed":
            left = ["no specialist fits; a person has to look at the ticket"]
            return hand("ticketing", "no specialist fits", data=_nothing(left))
        case "resolution_obtained" if demo(dispatch) == "stuck":
            return hand(specialty, "is that really all?")
        case "resolution_obtained" if resolution == NONE:
            return hand("ticketing", "nothing in the runbook fits: close with what remains")
        case "resolution_obtained":
            return hand("memory", "keep the resolution")
        case _:
            return hand("ticketing", "the summary is complete: close the ticket")


def _nothing(remaining: list[str]) -> dict[str, Any]:
    return {"resolution": NONE, "remaining": remaining}


# Memory


def _resolution(dispatch: Dispatch) -> str:
    said = dispatch.bead.context.get("resolution", "")
    return said if isinstance(said, str) else ""


def _title(dispatch: Dispatch) -> str:
    """On one line."""
    return " ".join(dispatch.bead.title.split())


async def _find(engine: Engine, dispatch: Dispatch) -> Known | None:
    """The best that is known, noted as what answers this run."""
    bead, run_id = dispatch.bead, dispatch.run.id
    found = await engine.recall(
        bead.title, bead.description, bead_id=bead.id, execution_id=run_id, limit=1
    )
    for one in found:
        await engine.use_memory(one.memory.id, bead_id=bead.id, execution_id=run_id)
        return Known(one.memory.title, one.memory.resolution, one.score, one.memory.id)
    return None


async def _keep(engine: Engine, dispatch: Dispatch, resolution: str) -> str:
    """The memory's id; "" if there is nothing to keep."""
    kept = await engine.remember(
        execution_id=dispatch.run.id,
        bead_id=dispatch.bead.id,
        title=dispatch.bead.title,
        text=dispatch.bead.description,
        resolution=resolution,
        by=dispatch.token.agent,
    )
    return kept.id if kept is not None else ""


def _stored(dispatch: Dispatch, memory_id: str = "") -> Result:
    data = {"memory": "stored", "phase_detail": "stored", "memory_id": memory_id}
    return hand(
        "orchestrator", "stored", f"Kept the resolution of '{_title(dispatch)}'.", data=data
    )


def _found(dispatch: Dispatch, best: Known | None) -> Result:
    """Whatever somebody wrote into the bead's context before is overwritten."""
    if best is None:
        data = {"memory": "miss", "phase_detail": "miss", "resolution": "", "memory_id": ""}
        return hand("orchestrator", "miss", "No ticket like this one is known.", data=data)
    alike = f"{best.score:.0%} alike"
    data = {"memory": "hit", "phase_detail": "hit", "resolution": best.resolution}
    data["memory_id"] = best.memory_id
    told_ = (
        f"Known from '{' '.join(best.title.split())}', {alike}:\n{best.resolution}\nThat is all."
    )
    return hand("orchestrator", "hit", told_, data=data)


# Ticketing


def _ticketing(dispatch: Dispatch) -> Result:
    if dispatch.task == "close":
        return _close(dispatch)
    if demo(dispatch) == "ask" and not dispatch.answer:
        return ask("May a specialist connect to the device?", "yes", "no")
    found = classify(dispatch.bead.title, dispatch.bead.description)
    specialty = found.specialty or "unknown"
    because = f"\nIt says: {', '.join(found.because)}." if found.because else ""
    told_ = f"The ticket concerns: {specialty}.{because}"
    return hand("orchestrator", f"analyzed: {specialty}", told_, data={"specialty": specialty})


def _close(dispatch: Dispatch) -> Result:
    resolution, title = _resolution(dispatch) or NONE, _title(dispatch)
    if resolution == NONE:
        left = _texts(dispatch.bead.context.get("remaining"))
        left = left or ("a person has to look at the ticket",)
        listed = "\n".join(f"- {one}" for one in left)
        told_ = f"'{title}' stays open for a person:\n{listed}\nTERMINATE_WORKFLOW"
        return end("no resolution was found", told_, status="done_partial", remaining=left)
    told_ = f"Ticket resolved: {resolution}\nTERMINATE_WORKFLOW"
    return end("ticket resolved", told_, evidence=Evidence(ticket_state="resolved"))


def _texts(said: object) -> tuple[str, ...]:
    """The texts of a list in a bead's context, where anybody may have written anything."""
    found = cast("list[object]", said) if isinstance(said, list) else []
    return tuple(one for one in found if isinstance(one, str) and one.strip())


# The specialists, and the summary


def _worker(dispatch: Dispatch) -> Result:
    bead = dispatch.bead
    tried = _texts(bead.context.get("tried"))
    entry = proposed(dispatch.agent, bead.title, bead.description, tried)
    if entry is None:
        left = [f"no entry of the runbook for {dispatch.agent} fits; a person has to look at it"]
        left += [f"runbook {one} was tried before and did not help" for one in tried]
        told_ = f"Nothing in the runbook for {dispatch.agent} fits."
        known = _resolution(dispatch) not in ("", NONE)  # by another specialist of this run
        return hand("orchestrator", "nothing fits", told_, data={} if known else _nothing(left))
    resolution = told(entry)
    data = {"resolution": resolution, "runbook": entry.id, "tried": [*tried, entry.id]}
    return hand("orchestrator", f"resolution found: {entry.named}", resolution, data=data)


def _summarization(dispatch: Dispatch) -> Result:
    """For whoever filed the ticket."""
    resolution, specialty = _resolution(dispatch), dispatch.bead.context.get("specialty", "")
    told_ = (
        f"About your ticket '{_title(dispatch)}':\n\n{specialty} proposes to try this.\n\n"
        f"{resolution}\n\nIf it does not help, open the ticket again: we go on from there.\n"
        "WORKFLOW_COMPLETE"
    )
    return hand("orchestrator", "summary written", told_, marker="WORKFLOW_COMPLETE")


# With a model


def _with_model(engine: Engine, model: str) -> dict[str, Agent]:
    from handrail.agents.model import model_agent

    def tools(dispatch: Dispatch) -> Sequence[Callable[..., object]]:
        async def find() -> str:
            """Look for a resolved ticket like the one at hand."""
            best = await _find(engine, dispatch)
            if best is None:
                return "Nothing like it is known."
            return f"{best.score:.0%} alike: {best.title}\n{best.resolution}"

        async def keep(resolution: str) -> str:
            """Keep the resolution of the ticket at hand for later ones like it."""
            return (
                "kept" if await _keep(engine, dispatch, resolution) else "there is nothing to keep"
            )

        return (find, keep)

    remembering = model_agent(model, instructions=INSTRUCTIONS["memory"], tools=tools)

    async def memory(dispatch: Dispatch) -> Result:
        return _marked(dispatch, await remembering(dispatch))

    agents = {
        role: model_agent(model, instructions=told_)
        for role, told_ in INSTRUCTIONS.items()
        if role != "memory"
    }
    return cast("dict[str, Agent]", {**agents, "memory": memory})


def _marked(dispatch: Dispatch, result: Result) -> Result:
    """What the definition routes by is said, also where the model forgot to say it."""
    if result.outcome is not Outcome.HANDOFF:
        return result
    said = dict(result.data or {})
    if dispatch.task == "store":
        said["memory"] = "stored"
    elif said.get("memory") != "hit" or not said.get("resolution"):
        said |= {"memory": "miss", "resolution": ""}
    return replace(result, data={**said, "phase_detail": said["memory"]})
