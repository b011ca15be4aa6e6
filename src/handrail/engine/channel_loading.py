"""Channels for a batch: their rows, and what all of their members hold elsewhere at this moment."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from handrail.engine.batch import Batch
from handrail.engine.channel_work import CHANNEL, ChannelWork, Order
from handrail.kernel.channel_events import AddMember
from handrail.store.channels import ChannelRow, ChannelStore, Engaged

Io = Callable[..., Awaitable[Any]]


async def load_channels(
    io: Io, store: ChannelStore, batch: Batch, streams: Sequence[str], now: datetime
) -> None:
    """All that the batch asks about."""
    names = [stream.removeprefix(CHANNEL) for stream in streams]
    rows: dict[str, ChannelRow] = await io(store.load_channels, names)
    works: list[ChannelWork] = []
    for stream, name in zip(streams, names, strict=True):
        try:
            works.append(ChannelWork(stream, rows.get(name)))
        except Exception as error:  # one channel's trouble is not everybody's
            batch.give_up(stream, error)
    agents = {agent for work in works for agent in work.agents()}
    for job in batch.jobs:
        if isinstance(job.command, Order) and isinstance(job.command.command, AddMember):
            agents.add(job.command.command.agent_id)
    engaged: dict[str, Engaged] = await io(store.engaged, sorted(agents)) if agents else {}
    for work in works:
        work.engaged = engaged
        batch.add_channel(work, now)
