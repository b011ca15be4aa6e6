"""The log of channels (T12): a line for every transition of an agent in one, and for what is
doubtful or was announced there. A listener, told after the commit."""

import logging
from typing import Any

from handrail.engine.channel_work import ChannelWork, Noticed, Told
from handrail.engine.listeners import Heard
from handrail.engine.run_lines import record
from handrail.engine.vocabulary import AGENTS, CHANNELS, Said
from handrail.kernel.channel_events import Transitioned, Warned
from handrail.kernel.lifecycle import word

agents = logging.getLogger("handrail.agents")
log = logging.getLogger("handrail.channels")

Line = tuple[logging.Logger, int, str, dict[str, Any]]


class ChannelLines:
    """For `engine.listeners`."""

    def __call__(self, heard: Heard) -> None:
        if not isinstance(heard, ChannelWork):
            return
        for told in heard.events:
            line = _line(heard.channel.id, told)
            if line is not None and line[0].isEnabledFor(line[1]):
                logger, level, name, fields = line
                logger.handle(record(logger.name, level, Said(name, fields, told.at)))


def _line(channel: str, told: Told) -> Line | None:
    match told.event:
        case Transitioned() as event:
            fields = {
                "agentId": event.agent_id,
                "from": event.from_.value,
                "to": event.to.value,
                "trigger": word(event.trigger),
                "channel": channel,
            }
            return agents, AGENTS["state_transition"].level, "state_transition", fields
        case Warned(code=code, agent_id=agent, message=message):
            fields = {"channel": channel, "code": code, "agent": agent, "message": message}
            return log, CHANNELS["channel_warned"].level, "channel_warned", fields
        case Noticed(code=code, text=text):
            fields = {"channel": channel, "code": code, "text": text}
            return log, CHANNELS["channel_noticed"].level, "channel_noticed", fields
        case _:
            return None
