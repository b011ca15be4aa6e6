"""The same conversation in AutoGen's RoundRobinGroupChat, in memory: its agents answer at once.

    python -m benchmarks.channels.autogen_chat CHATS TURNS

Prints one JSON object. A handover is from the return of an agent to the call of the next.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken

from benchmarks.channels.talk import AGENTS, TEXT, figures


class Chat:
    """When the last agent of it was done, and how long the next ones waited."""

    def __init__(self, turns: int) -> None:
        self.done_at: float | None = None
        self.handovers: list[float] = []
        team = [Stub(f"agent_{k}", self) for k in range(AGENTS)]
        self.team = RoundRobinGroupChat(team, max_turns=turns)


class Stub(BaseChatAgent):
    def __init__(self, name: str, chat: Chat) -> None:
        super().__init__(name, "answers at once")
        self.chat = chat

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        chat = self.chat
        if chat.done_at is not None:
            chat.handovers.append(1000 * (time.perf_counter() - chat.done_at))
        answer = Response(chat_message=TextMessage(content=TEXT, source=self.name))
        chat.done_at = time.perf_counter()
        return answer

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def measured(chats: int, turns: int) -> dict[str, object]:
    made = [Chat(turns // chats) for _ in range(chats)]
    start = time.perf_counter()
    await asyncio.gather(*(chat.team.run(task="begin") for chat in made))
    seconds = time.perf_counter() - start
    handovers = [one for chat in made for one in chat.handovers]
    found = figures(chats * (turns // chats), seconds, handovers)
    return {**found, "version": version("autogen-agentchat")}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(int(sys.argv[1]), int(sys.argv[2])))))
