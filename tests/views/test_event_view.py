"""Events as streams, histories and the audit log show them: one form, and who did it."""

from typing import get_args

import msgspec
import pytest
from tests.kernel import histories
from tests.kernel.driven_run import ANA, DrivenRun, chain, node

from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.views.event_view import (
    ACTOR_FIELDS,
    ACTS_OF_NO_RUN,
    ENGINE_ACTOR,
    HUMAN_ACT_TYPES,
    event_view,
    is_human_act_or_end,
)

ASKS = chain(node("a"), node("ok", "approval", revise_to="a"))


def test_every_kind_of_event_says_who_did_it():
    assert set(ACTOR_FIELDS) == {kind.__struct_config__.tag for kind in get_args(RunEvent)}
    for kind in get_args(RunEvent):
        field = ACTOR_FIELDS[str(kind.__struct_config__.tag)]
        assert not field or field in kind.__struct_fields__
    assert set(ACTOR_FIELDS) >= HUMAN_ACT_TYPES - ACTS_OF_NO_RUN


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_an_event_is_shown_the_same_live_and_from_the_journal(make):
    for seq, event in enumerate(make().events, 1):
        stored = msgspec.json.decode(msgspec.json.encode(event))
        shown = event_view("r1", seq, event)
        assert msgspec.json.encode(shown) == msgspec.json.encode(event_view("r1", seq, stored))
        assert list(shown)[:5] == ["execution_id", "seq", "type", "at", "actor"]
        told = {name: shown[name] for name in ("execution_id", "seq", "actor")}
        assert msgspec.json.decode(msgspec.json.encode(shown)) == {**told, **stored}
        assert shown["actor"]


def test_agents_people_and_the_engine_are_told_apart():
    d = DrivenRun(ASKS, filed_by="ola")
    d.succeed("a", agent="ada")
    d.answer("once more, please")
    d.do(c.Pause(by=ANA, reason="lunch"))
    told = [(one["type"], one["actor"]) for one in shown(d.events)]
    assert told[:4] == [
        *(
            ("started", "ola"),
            ("moved", ENGINE_ACTOR),
            ("offered", ENGINE_ACTOR),
            ("claimed", "ada"),
        ),
    ]
    assert ("reported", "ada") in told
    assert ("asked", ENGINE_ACTOR) in told
    assert told[-4:] == [
        *(("answered", "ana"), ("moved", "ana"), ("offered", ENGINE_ACTOR), ("paused", "ana")),
    ]


def test_what_people_did_and_how_a_run_ended_is_told_apart_from_the_rest():
    d = DrivenRun(ASKS, filed_by="ola")
    d.succeed("a", agent="ada")
    d.answer("ok")
    kept = [one["type"] for one in shown(d.events) if is_human_act_or_end(one)]
    assert kept == ["started", "answered", "moved", "ended"]
    assert [one["type"] for one in shown(DrivenRun(ASKS).events) if is_human_act_or_end(one)] == []


def shown(events: list[RunEvent]) -> list[dict]:
    return [event_view("r1", seq, event) for seq, event in enumerate(events, 1)]
