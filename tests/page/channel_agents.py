"""A channel with agents in it, each of which does what the test says."""

import itertools
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from tests.page.site import Site

from handrail.kernel.channel import events as ev
from handrail.kernel.channel.state import HumanMode
from handrail.views.channels import ChannelView

ANA, AGENTS = "ana", ("ada", "bo", "cy")
NUMBERS = itertools.count(1)


class Talk:
    """A channel of a site; one that is opened again would remember what was said in it."""

    def __init__(
        self,
        site: Site,
        mode: str = "inject",
        agents: Sequence[str] = AGENTS,
        name: str = "",
        **config: Any,
    ) -> None:
        self.site, self.name = site, name or f"reviews-{next(NUMBERS)}"
        self.path = f"/channels/{quote(self.name)}"
        times = {"defaultTimeoutSeconds": 3600.0, "waitTimeoutSeconds": 3600.0}
        given = {"humanInterruptMode": HumanMode(mode), **times, **config}
        site.do(
            site.engine.channels.open(self.name, site.engine.channels.turn_config(given), by=ANA)
        )
        for agent in agents:
            site.do(site.engine.agents.register(agent, ["reviewer"]))
            site.do(site.engine.channels.join(self.name, agent, by=ANA))

    def view(self) -> ChannelView:
        return self.site.do(self.site.engine.channels.get(self.name))

    def say(self, agent: str, text: str) -> None:
        self.site.do(self.site.engine.channels.say(self.name, agent, text))

    def post(self, text: str) -> None:
        self.site.do(self.site.engine.channels.post(self.name, text, by=ANA))

    def done(self, agent: str) -> None:
        """It has nothing more to say in its turn."""
        self.site.do(
            self.site.engine.channels.command(self.name, ev.CompleteTurn(agent_id=agent), by=agent)
        )

    def waits(self, agent: str, reason: str = "the build") -> None:
        command = ev.RequestWait(agent_id=agent, reason=reason)
        self.site.do(self.site.engine.channels.command(self.name, command, by=agent))

    def given(self, agent: str) -> list[str] | None:
        """What its turn has brought it so far; None while it has no turn to answer in."""
        turn = self.site.do(self.site.engine.channels.turn_of(self.name, agent))
        return None if turn is None else [one.text for one in turn.messages]

    def reads(self, agent: str) -> list[str]:
        """What has reached it."""
        found = self.site.do(self.site.engine.channels.log(self.name, reader=agent))
        return [one.text for one in found if one.kind == "message"]


def clear(site: Site) -> None:
    """No channel is left."""
    for one in site.do(site.engine.channels.list()).items:
        site.do(site.engine.channels.close(one.id, by=ANA))
