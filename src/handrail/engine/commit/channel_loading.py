"""Load channels for a batch: their rows, and what their members hold elsewhere at this moment."""

from collections.abc import Sequence
from datetime import datetime

from handrail.engine.commit.batch import Batch
from handrail.engine.commit.channel_change import (
    CHANNEL_STREAM_PREFIX,
    ChannelRequest,
    ChannelStreamChange,
)
from handrail.engine.store_access import StoreAccess
from handrail.kernel.channel.events import AddMember


async def load_channels(
    access: StoreAccess, batch: Batch, streams: Sequence[str], now: datetime
) -> None:
    """Load every channel that the batch names."""
    names = [stream.removeprefix(CHANNEL_STREAM_PREFIX) for stream in streams]
    rows = await access.call(access.store.channels.load, names)
    changes: list[ChannelStreamChange] = []
    for stream, name in zip(streams, names, strict=True):
        try:
            changes.append(ChannelStreamChange(stream, rows.get(name)))
        except Exception as error:  # a failing channel fails alone
            batch.fail_stream(stream, error)
    agents = {agent for change in changes for agent in change.agent_ids()}
    for job in batch.jobs:
        if isinstance(job.command, ChannelRequest) and isinstance(job.command.command, AddMember):
            agents.add(job.command.command.agent_id)
    agent_loads = (
        await access.call(access.store.channels.get_agent_loads, sorted(agents)) if agents else {}
    )
    for change in changes:
        change.agent_loads = agent_loads
        batch.add_channel(change, now)
