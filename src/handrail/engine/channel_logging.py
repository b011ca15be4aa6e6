"""The log of channels (T12): a line for every transition of an agent in a channel, and for doubtful
or announced events there. A listener, called after the commit."""

import logging
from typing import Any

from handrail.engine.commit.channel_change import ChannelStreamChange, Noticed, StampedEvent
from handrail.engine.listeners import EngineNotification
from handrail.engine.log_events import AGENT_EVENTS, CHANNEL_EVENTS, LogMessage
from handrail.engine.run_logging import make_record
from handrail.kernel.agent_lifecycle import log_name
from handrail.kernel.channel.events import ChannelWarned, Transitioned

agents_log = logging.getLogger("handrail.agents")
log = logging.getLogger("handrail.channels")

LogCall = tuple[logging.Logger, int, str, dict[str, Any]]


class ChannelLogger:
    """For `engine.listeners`."""

    def __call__(self, notification: EngineNotification) -> None:
        if not isinstance(notification, ChannelStreamChange):
            return
        for stamped in notification.events:
            call = _log_call(notification.channel.id, stamped)
            if call is not None and call[0].isEnabledFor(call[1]):
                logger, level, name, fields = call
                logger.handle(make_record(logger.name, level, LogMessage(name, fields, stamped.at)))


def _log_call(channel: str, stamped: StampedEvent) -> LogCall | None:
    match stamped.event:
        case Transitioned() as event:
            fields = {
                "agentId": event.agent_id,
                "from": event.from_.value,
                "to": event.to.value,
                "trigger": log_name(event.trigger),
                "channel": channel,
            }
            return agents_log, AGENT_EVENTS["state_transition"].level, "state_transition", fields
        case ChannelWarned(code=code, agent_id=agent, message=message):
            fields = {"channel": channel, "code": code, "agent": agent, "message": message}
            return log, CHANNEL_EVENTS["channel_warned"].level, "channel_warned", fields
        case Noticed(code=code, text=text):
            fields = {"channel": channel, "code": code, "text": text}
            return log, CHANNEL_EVENTS["channel_noticed"].level, "channel_noticed", fields
        case _:
            return None
