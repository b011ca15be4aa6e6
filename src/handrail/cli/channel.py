"""`handrail channel`: who is in a conversation, who has the turn, and a word of a person to it."""

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.words import clean, typed
from handrail.client.channel_calls import TurnAction
from handrail.client.clients import AsyncClient
from handrail.engine.channel_views import ChannelView, MessageView

LAST = 20
"""Lines of the log that are shown,"""
LOOKED_THROUGH = 200
"""of what these last events have left there."""
LISTED_MAX = 1_000


def list_channels(where: Where) -> int:
    async def do(client: AsyncClient) -> None:
        found: list[ChannelView] = []
        async for one in client.each(client.channels):
            found.append(one)
            if len(found) >= LISTED_MAX:
                break
        if where.as_json:
            tables.print_json({"items": found})
            return
        heads = ("channel", "turn of", "queue", "messages", "turns", "state")
        tables.print_table(heads, [_row(one) for one in found], "there is no channel")

    return ask(where, do)


def show_channel(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        name = typed(given)
        channel = await client.channel(name)
        before = max(0, channel.position - LOOKED_THROUGH)
        log = (await client.messages(name, after=before, limit=LOOKED_THROUGH)).items[-LAST:]
        if where.as_json:
            tables.print_json({"channel": channel, "log": log})
            return
        tables.print_line(f"channel {channel.id}: {_state(channel)}")
        members = [(one.agent_id, one.state.value) for one in channel.members]
        tables.print_table(("agent", "state"), members, "nobody is in it")
        for line in log:
            tables.print_line(_said(line))

    return ask(where, do)


def say(where: Where, given: str, text: str, to: str) -> int:
    async def do(client: AsyncClient) -> None:
        posted = await client.say(typed(given), typed(text), to=typed(to) or None)
        if where.as_json:
            tables.print_json(posted)
        else:
            tables.print_line(f"{posted.id}: {posted.disposition}")

    return ask(where, do)


def act(where: Where, given: str, action: TurnAction, agent: str = "") -> int:
    """Pause, unpause, or give somebody the turn."""

    async def do(client: AsyncClient) -> None:
        channel = await client.turn(typed(given), action, agent_id=typed(agent))
        if where.as_json:
            tables.print_json(channel)
        else:
            tables.print_line(f"channel {channel.id}: {_state(channel)}")

    return ask(where, do)


def _row(one: ChannelView) -> list[tables.Cell]:
    holder = one.turn.agent_id if one.turn is not None else ""
    queue = ", ".join(one.queue)
    return [one.id, holder, queue, str(one.messages), str(one.turns), _state(one)]


def _state(one: ChannelView) -> str:
    if one.paused:
        return "paused"
    if one.resting:
        return f"rests: {clean(one.resting)}"
    if one.turn is None:
        return "nobody has the turn"
    how = "waits in" if one.turn.wait_until is not None else "has"
    return f"{one.turn.agent_id} {how} turn {one.turn.number}"


def _said(line: MessageView) -> str:
    author = line.author if line.kind == "message" else "—"
    return f"{tables.at(line.at)}  {author}: {line.text}"
