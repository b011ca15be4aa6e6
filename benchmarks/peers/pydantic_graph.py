"""pydantic-graph: nodes that return the next node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext

DISTRIBUTION = "pydantic-graph"

N = TypeVar("N")


@dataclass
class Count:
    goal: int
    made: int = 0


class Triage(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Billing | End[int]:
        return step(ctx.state, Billing)


class Billing(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Tech | End[int]:
        return step(ctx.state, Tech)


class Tech(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Triage | End[int]:
        return step(ctx.state, Triage)


def step(state: Count, target: type[N]) -> N | End[int]:
    if state.made == state.goal:
        return End(state.made)
    state.made += 1
    return target()


@cache
def graph() -> Any:
    builder = GraphBuilder(state_type=Count, input_type=Triage, output_type=int)
    start = builder.edge_from(builder.start_node).to(Triage)
    builder.add(start, *(builder.node(node) for node in (Triage, Billing, Tech)))
    return builder.build()


def prepare(handoffs: int) -> Callable[[], int]:
    built = graph()
    loop = shared_loop()

    def run() -> int:
        return loop.run_until_complete(built.run(state=Count(handoffs), inputs=Triage()))

    return run


@cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """One for all runs: making a loop is not what is measured."""
    return asyncio.new_event_loop()
