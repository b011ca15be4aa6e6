"""The tools of an agent: a table of what each takes, what it is for, and what it does.

Rules
1. Who calls is who the token says, which is whose seat it is. No tool takes an agent's name.
2. What a tool answers is text of a bounded size. What went wrong is text too, with what to do next.
3. Under the same dispatch the same answer is meant: a model that repeats a call, because it heard
   nothing, does not report twice.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from handrail.client.errors import ClientError
from handrail.client.shapes import Accepted
from handrail.engine.channel_views import TurnView
from handrail.mcp import asked as a
from handrail.mcp.seat import NotSo, Seat, fence_of
from handrail.mcp.words import dispatch_text, fenced, messages_text, page, told, turn_text

MESSAGES_MAX = 50
NOTHING = "There is nothing to do at the moment. Call `claim` again to wait for more."
NEXT = "Call `claim` for what is next."


class Said(NamedTuple):
    """What the model reads; `wrong`: the call came to nothing."""

    text: str
    wrong: bool = False


class Tool(NamedTuple):
    asked: type[a.Asked]
    about: str
    does: Callable[[Seat, Any], Awaitable[str]]


async def call(seat: Seat, name: str, arguments: dict[str, Any]) -> Said:
    """One call of the agent at that seat."""
    tool = TOOLS.get(name)
    if tool is None:
        return Said(f"there is no tool '{name[:100]}'; there are: {', '.join(TOOLS)}", wrong=True)
    asked = a.read(tool.asked, arguments)
    if isinstance(asked, str):
        return Said(asked, wrong=True)
    try:
        with seat.called():
            text, wrong = await tool.does(seat, asked), False
    except ClientError as error:
        text, wrong = told(error), True
    except NotSo as error:
        text, wrong = str(error), True
    return Said("\n\n".join([*seat.news(), text]), wrong)


# To be there, and to be given work


async def register(seat: Seat, asked: a.Register) -> str:
    if seat.in_hand:
        names = ", ".join(seat.in_hand)
        raise NotSo(f"to register again would lose what you have in hand ({names}); finish it")
    view = await seat.client.register_agent(seat.agent_id, asked.roles, capacity=asked.capacity)
    seat.keep_up()
    channels = await seat.join(view)
    there = f" You take turns in: {', '.join(channels)}." if channels else ""
    return f"You are '{view.id}', and work as: {', '.join(view.roles)}.{there} {NEXT}"


async def claim(seat: Seat, asked: a.Claim) -> str:
    known = sorted(seat.in_hand)
    found = await seat.client.claim(seat.agent_id, wait=asked.wait, holding=known)
    if found is None:
        seat.keep_up()
        held = f" You have in hand: {', '.join(seat.in_hand)}." if seat.in_hand else ""
        return NOTHING + held
    seat.take(found)
    if isinstance(found, TurnView):
        return turn_text(found)
    return page(dispatch_text(found), 1, MORE_CONTEXT)


MORE_CONTEXT = "read all of them before you begin, with `context` and `page`"


async def context(seat: Seat, asked: a.Context) -> str:
    found = seat.dispatch(asked.dispatch_id)
    return page(dispatch_text(found), asked.page, MORE_CONTEXT)


async def read_file(seat: Seat, asked: a.ReadFile) -> str:
    bead = seat.dispatch(asked.dispatch_id).bead
    info = next((one for one in bead.files if one.name == asked.name), None)
    if info is None:
        names = ", ".join(one.name for one in bead.files) or "none"
        raise NotSo(f"the bead has no file '{asked.name[:200]}'; there are: {names}")
    content = await seat.client.file(bead.id, asked.name)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"'{info.name}' is no text: {info.content_type}, {info.size:,} bytes, {info.sha256}"
    return fenced(page(text, asked.page, "call `read_file` with another `page`"))


async def progress(seat: Seat, asked: a.Progress) -> str:
    name = seat.dispatch_id(asked.dispatch_id)
    alive = await seat.client.beat_dispatch(name, fence_of(name))
    if alive.ended:
        seat.put_down(name)
        return f"Stop working on {name}: {alive.reason}. {NEXT}"
    return f"Go on: {name} is yours, and your lease was extended."


# What comes of it


async def answer(seat: Seat, asked: a.Answer) -> str:
    fields = msgspec.structs.asdict(asked)
    name = seat.dispatch_id(fields.pop("dispatch_id"))
    return await _report(seat, name, {key: given for key, given in fields.items() if given})


async def ask_person(seat: Seat, asked: a.AskPerson) -> str:
    name = seat.dispatch_id(asked.dispatch_id)
    question = {"outcome": "ask", "question": asked.question, "options": asked.options}
    heard = await _report(seat, name, question)
    return f"{heard} When a person has answered, you are given the turn again, with the answer."


async def _report(seat: Seat, name: str, result: dict[str, Any]) -> str:
    same = hashlib.sha256(msgspec.json.encode([name, result], order="sorted")).hexdigest()[:40]
    fence = fence_of(name)
    with seat.settling(name):
        done = await seat.client.report_result(name, fence, result, key=f"mcp-{same}")
    return _became(done)


def _became(done: Accepted) -> str:
    run = done.execution
    if not done.accepted:
        told = f"It was not accepted, and cost an attempt: {done.reason}"
        return f"{told}. You may be given the turn again; then do it otherwise. {NEXT}"
    end = f" The run has ended: {run.terminal_status}." if run.terminal_status else ""
    return f"It was accepted.{end} {NEXT}"


async def give_back(seat: Seat, asked: a.GiveBack) -> str:
    name = seat.dispatch_id(asked.dispatch_id)
    with seat.settling(name):
        await seat.client.release(name, fence_of(name), asked.reason)
    return f"You have given it back; it cost an attempt. {NEXT}"


# Turns in channels


async def say(seat: Seat, asked: a.Say) -> str:
    view = seat.turn(asked.channel)
    await seat.client.say(view.channel_id, asked.text, to=asked.to or None, turn=view.turn)
    if not asked.end_turn:
        return "It was said, and the turn is still yours."
    with seat.settling(view.id):
        await seat.client.turn(view.channel_id, "complete", turn=view.turn)
    return f"It was said, and the turn has gone on. {NEXT}"


async def hear(seat: Seat, asked: a.Hear) -> str:
    view = seat.turn(asked.channel)
    channel, until = view.channel_id, seat.heard_until.get(view.channel_id, 0)
    after = until if asked.after is None else max(0, asked.after)
    found = await seat.client.messages(channel, after=after, wait=asked.wait, limit=MESSAGES_MAX)
    seat.heard_until[channel] = max((until, *(one.id for one in found.items)))
    others = [one for one in found.items if one.human or one.author != seat.agent_id]
    return messages_text(others)


async def turn(seat: Seat, asked: a.Turn) -> str:
    view = seat.turn(asked.channel)
    channel, number = view.channel_id, view.turn
    if asked.action == "complete":
        with seat.settling(view.id):
            await seat.client.turn(channel, "complete", turn=number)
        return f"The turn has gone on. {NEXT}"
    wait, why = asked.seconds, asked.reason
    await seat.client.turn(channel, asked.action, turn=number, seconds=wait, reason=why)
    return "The turn is paused; go on with `resume`." if asked.action == "wait" else "Go on."


TOOLS: dict[str, Tool] = {
    "register": Tool(
        a.Register,
        "Say that you are there, and what you work as. Once, before the first `claim`.",
        register,
    ),
    "claim": Tool(
        a.Claim,
        "Ask for work. Gives a dispatch (one step of a run, to be answered with `answer`), or your"
        " turn in a channel (`say`), or nothing yet. What is yours and got lost is given again.",
        claim,
    ),
    "context": Tool(
        a.Context, "A dispatch in your hands once more: who you are, the work, the past.", context
    ),
    "read_file": Tool(a.ReadFile, "The text of a file that belongs to the bead.", read_file),
    "progress": Tool(
        a.Progress,
        "Say that you still work on it, and hear whether to go on. Your lease is kept up without"
        " it; call it before and during steps of many minutes.",
        progress,
    ),
    "answer": Tool(
        a.Answer,
        "What came of a dispatch: exactly one for each. Ends your work on it.",
        answer,
    ),
    "ask_person": Tool(
        a.AskPerson,
        "Ask a person what only a person can say. Ends your work on the dispatch; it comes back to"
        " you with the answer.",
        ask_person,
    ),
    "give_back": Tool(
        a.GiveBack, "You cannot do it: others may try. It costs an attempt.", give_back
    ),
    "say": Tool(a.Say, "Speak in a channel in which you have the turn.", say),
    "hear": Tool(a.Hear, "What was said in that channel meanwhile.", hear),
    "turn": Tool(a.Turn, "Pass your turn on without a word, pause it, or go on.", turn),
}
