"""Helpdesk: by rules and a runbook, or with a language model; resolved tickets are remembered.

Offline, words choose the specialty and the specialty's entry of the runbook is the proposal. A
ticket like a resolved one is answered from memory. Nothing that failed is proposed again: a
reopened ticket gets neither its answer from memory nor the entries that were tried.

Endings: success after work, success from memory (the same ticket again), partial when no specialty
or no entry fits. `context.demo`: "stuck" (the orchestrator asks the same worker for ever), "ask"
(ticketing asks a person first; rejecting that closes the run).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.services.memory import SIMILARITY_MIN
from handrail.engine.services.similarity import score, signature
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.teams.runbook import classify, format_entry, load_runbook, propose_entry
from handrail.teams.scripted import ScriptedAgent, ask, hand_off, requested_demo, terminate

SPECIALTIES = tuple(load_runbook().vocabulary)
NO_RESOLUTION = "none"
"""The value for "no resolution"."""
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
"""Instructions for a language model beside the rules of the definition."""


class ResolvedTicket(NamedTuple):
    """A ticket that was resolved before."""

    title: str
    resolution: str
    score: float
    memory_id: str = ""


def scripted_agents() -> dict[str, ScriptedAgent]:
    """Return the team's agents with a memory of their own, which is lost with them."""
    resolved_tickets: dict[str, ResolvedTicket] = {}

    def memory(dispatch: Dispatch) -> Result:
        title, text = dispatch.bead.title, dispatch.bead.description
        own_signature = signature(title, text)
        if dispatch.task == "store":
            resolved_tickets[own_signature] = ResolvedTicket(title, _resolution(dispatch), 1.0)
            return _stored_result(dispatch)
        scored_tickets = [
            ticket._replace(score=score(other_signature, own_signature))
            for other_signature, ticket in resolved_tickets.items()
        ]
        best = max(scored_tickets, key=lambda ticket: ticket.score, default=None)
        return _recall_result(
            dispatch, best if best is not None and best.score >= SIMILARITY_MIN else None
        )

    return {**_rule_agents(), "memory": memory}


def build_agents(
    engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> dict[str, ScriptedAgent]:
    """Return the team's agents on an engine, with the engine's memory."""
    del workspaces  # a helpdesk changes no files
    if model:
        return _build_model_agents(engine, model)

    async def memory(dispatch: Dispatch) -> Result:
        if dispatch.task == "store":
            memory_id = await _remember(engine, dispatch, _resolution(dispatch))
            return _stored_result(dispatch, memory_id)
        best = await _recall(engine, dispatch)
        return _recall_result(dispatch, best)

    async_agents = {role: _to_async(agent) for role, agent in _rule_agents().items()}
    return cast("dict[str, ScriptedAgent]", {**async_agents, "memory": memory})


def _to_async(agent: ScriptedAgent) -> Callable[[Dispatch], Awaitable[Result]]:
    """Wrap a fast agent without a thread."""

    async def work(dispatch: Dispatch) -> Result:
        return agent(dispatch)

    return work


def _rule_agents() -> dict[str, ScriptedAgent]:
    return {
        "orchestrator": _orchestrator,
        "ticketing": _ticketing,
        "summarization": _summarization,
        **dict.fromkeys(SPECIALTIES, _specialist),
    }


# Routing


def _orchestrator(dispatch: Dispatch) -> Result:
    context = dispatch.bead.context
    specialty, resolution = context.get("specialty", ""), _resolution(dispatch)
    match dispatch.phase:
        case "memory_check_pending":
            return hand_off("memory", "was a ticket like this resolved before?")
        case "memory_checked" if context.get("memory") == "stored":
            return hand_off("summarization", "the resolution is kept; write the summary")
        case "memory_checked" if context.get("memory") == "hit":
            return hand_off("ticketing", "resolved before: close with the known resolution")
        case "memory_checked":
            return hand_off("ticketing", "nothing known: analyze the ticket")
        case "ticket_analyzed" if specialty in SPECIALTIES:
            return hand_off(specialty, f"the ticket concerns {specialty}")
        case "ticket_analyzed":
            remaining = ["no specialist fits; a person has to look at the ticket"]
            return hand_off("ticketing", "no specialist fits", data=_no_resolution(remaining))
        case "resolution_obtained" if requested_demo(dispatch) == "stuck":
            return hand_off(specialty, "is that really all?")
        case "resolution_obtained" if resolution == NO_RESOLUTION:
            return hand_off("ticketing", "nothing in the runbook fits: close with what remains")
        case "resolution_obtained":
            return hand_off("memory", "keep the resolution")
        case _:
            return hand_off("ticketing", "the summary is complete: close the ticket")


def _no_resolution(remaining: list[str]) -> dict[str, Any]:
    return {"resolution": NO_RESOLUTION, "remaining": remaining}


# Memory


def _resolution(dispatch: Dispatch) -> str:
    value = dispatch.bead.context.get("resolution", "")
    return value if isinstance(value, str) else ""


def _title(dispatch: Dispatch) -> str:
    """Return the title on one line."""
    return " ".join(dispatch.bead.title.split())


async def _recall(engine: Engine, dispatch: Dispatch) -> ResolvedTicket | None:
    """Return the best match in memory, and record it as the answer of this run."""
    bead, run_id = dispatch.bead, dispatch.run.id
    memories = await engine.memory.recall(
        bead.title, bead.description, bead_id=bead.id, execution_id=run_id, limit=1
    )
    for recalled_memory in memories:
        await engine.memory.use(recalled_memory.memory.id, bead_id=bead.id, execution_id=run_id)
        return ResolvedTicket(
            recalled_memory.memory.title,
            recalled_memory.memory.resolution,
            recalled_memory.score,
            recalled_memory.memory.id,
        )
    return None


async def _remember(engine: Engine, dispatch: Dispatch, resolution: str) -> str:
    """Store the resolution and return the memory's id; "" if there is nothing to store."""
    memory = await engine.memory.remember(
        execution_id=dispatch.run.id,
        bead_id=dispatch.bead.id,
        title=dispatch.bead.title,
        text=dispatch.bead.description,
        resolution=resolution,
        by=dispatch.position.agent,
    )
    return memory.id if memory is not None else ""


def _stored_result(dispatch: Dispatch, memory_id: str = "") -> Result:
    data = {"memory": "stored", "phase_detail": "stored", "memory_id": memory_id}
    return hand_off(
        "orchestrator", "stored", f"Kept the resolution of '{_title(dispatch)}'.", data=data
    )


def _recall_result(dispatch: Dispatch, best: ResolvedTicket | None) -> Result:
    """Return the result of a recall, which overwrites all earlier values in the bead's context."""
    if best is None:
        data = {"memory": "miss", "phase_detail": "miss", "resolution": "", "memory_id": ""}
        return hand_off("orchestrator", "miss", "No ticket like this one is known.", data=data)
    similarity = f"{best.score:.0%} alike"
    data = {"memory": "hit", "phase_detail": "hit", "resolution": best.resolution}
    data["memory_id"] = best.memory_id
    text = (
        f"Known from '{' '.join(best.title.split())}', {similarity}:\n{best.resolution}\nThat "
        "is all."
    )
    return hand_off("orchestrator", "hit", text, data=data)


# Ticketing


def _ticketing(dispatch: Dispatch) -> Result:
    if dispatch.task == "close":
        return _close(dispatch)
    if requested_demo(dispatch) == "ask" and not dispatch.answer:
        return ask("May a specialist connect to the device?", "yes", "no")
    classification = classify(dispatch.bead.title, dispatch.bead.description)
    specialty = classification.specialty or "unknown"
    evidence_line = (
        f"\nIt says: {', '.join(classification.matched_words)}."
        if classification.matched_words
        else ""
    )
    text = f"The ticket concerns: {specialty}.{evidence_line}"
    return hand_off("orchestrator", f"analyzed: {specialty}", text, data={"specialty": specialty})


def _close(dispatch: Dispatch) -> Result:
    resolution, title = _resolution(dispatch) or NO_RESOLUTION, _title(dispatch)
    if resolution == NO_RESOLUTION:
        remaining = _text_items(dispatch.bead.context.get("remaining"))
        remaining = remaining or ("a person has to look at the ticket",)
        listed = "\n".join(f"- {item}" for item in remaining)
        text = f"'{title}' stays open for a person:\n{listed}\nTERMINATE_WORKFLOW"
        return terminate(
            "no resolution was found", text, status="done_partial", remaining=remaining
        )
    text = f"Ticket resolved: {resolution}\nTERMINATE_WORKFLOW"
    return terminate("ticket resolved", text, evidence=Evidence(ticket_state="resolved"))


def _text_items(value: object) -> tuple[str, ...]:
    """Return the texts of a list in a bead's context, where anybody may have written anything."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str) and item.strip())


# The specialists, and the summary


def _specialist(dispatch: Dispatch) -> Result:
    bead = dispatch.bead
    tried = _text_items(bead.context.get("tried"))
    entry = propose_entry(dispatch.agent, bead.title, bead.description, tried)
    if entry is None:
        remaining = [
            f"no entry of the runbook for {dispatch.agent} fits; a person has to look at it"
        ]
        remaining += [f"runbook {entry_id} was tried before and did not help" for entry_id in tried]
        text = f"Nothing in the runbook for {dispatch.agent} fits."
        has_resolution = _resolution(dispatch) not in (
            "",
            NO_RESOLUTION,
        )  # by another specialist of this run
        return hand_off(
            "orchestrator",
            "nothing fits",
            text,
            data={} if has_resolution else _no_resolution(remaining),
        )
    resolution = format_entry(entry)
    data = {"resolution": resolution, "runbook": entry.id, "tried": [*tried, entry.id]}
    return hand_off("orchestrator", f"resolution found: {entry.label}", resolution, data=data)


def _summarization(dispatch: Dispatch) -> Result:
    """Summarize for the person who filed the ticket."""
    resolution, specialty = _resolution(dispatch), dispatch.bead.context.get("specialty", "")
    text = (
        f"About your ticket '{_title(dispatch)}':\n\n{specialty} proposes to try this.\n\n"
        f"{resolution}\n\nIf it does not help, open the ticket again: we go on from there.\n"
        "WORKFLOW_COMPLETE"
    )
    return hand_off("orchestrator", "summary written", text, marker="WORKFLOW_COMPLETE")


# With a model


def _build_model_agents(engine: Engine, model: str) -> dict[str, ScriptedAgent]:
    from handrail.agents.model import model_agent

    def tools(dispatch: Dispatch) -> Sequence[Callable[..., object]]:
        async def find() -> str:
            """Look for a resolved ticket like the one at hand."""
            best = await _recall(engine, dispatch)
            if best is None:
                return "Nothing like it is known."
            return f"{best.score:.0%} alike: {best.title}\n{best.resolution}"

        async def keep(resolution: str) -> str:
            """Keep the resolution of the ticket at hand for later ones like it."""
            return (
                "kept"
                if await _remember(engine, dispatch, resolution)
                else "there is nothing to keep"
            )

        return (find, keep)

    ask_model = model_agent(model, instructions=INSTRUCTIONS["memory"], tools=tools)

    async def memory(dispatch: Dispatch) -> Result:
        return _mark_memory_result(dispatch, await ask_model(dispatch))

    agents = {
        role: model_agent(model, instructions=instructions)
        for role, instructions in INSTRUCTIONS.items()
        if role != "memory"
    }
    return cast("dict[str, ScriptedAgent]", {**agents, "memory": memory})


def _mark_memory_result(dispatch: Dispatch, result: Result) -> Result:
    """Set the value that the definition routes by, also where the model forgot it."""
    if result.outcome is not Outcome.HANDOFF:
        return result
    data = dict(result.data or {})
    if dispatch.task == "store":
        data["memory"] = "stored"
    elif data.get("memory") != "hit" or not data.get("resolution"):
        data |= {"memory": "miss", "resolution": ""}
    return replace(result, data={**data, "phase_detail": data["memory"]})
