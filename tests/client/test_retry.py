"""How a call is tried: again, elsewhere, and not for ever. Time and chance are the test's."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.client.sample_operations import declared

from handrail.api.beads import BeadCalls
from handrail.api.operation import Call
from handrail.client.errors import (
    AccessDeniedError,
    ClientError,
    ConflictError,
    InvalidRequestError,
    UnreachableError,
)
from handrail.client.retry import (
    BACKOFF_SECONDS_MAX,
    TRIES_MAX,
    AttemptOutcome,
    Backoff,
    RawResponse,
    RetryPolicy,
    SendRequest,
    ServerAddresses,
    TransportFailure,
    call_with_retries,
    parse_addresses,
)

A, B, C = "http://a:1", "http://b:1", "http://c:1"
GET = declared("GET", "/me").call()
POST = declared("POST", "/beads").call()
OK = RawResponse(200, {}, b'{"ok": true}')
CUT = TransportFailure("connection refused")


def busy(status: int = 503, **headers: str) -> RawResponse:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return RawResponse(
        status, told, b'{"title": "Busy", "status": 503, "detail": "busy; come again"}'
    )


def _one_after_another(
    outcomes: Sequence[AttemptOutcome],
) -> Callable[[SendRequest], AttemptOutcome]:
    remaining = iter(outcomes)
    return lambda _: next(remaining)


class Talk:
    """A conversation played with the given answers; the clock moves by its pauses."""

    def __init__(
        self,
        call: Call[Any],
        came: Callable[[SendRequest], AttemptOutcome] | Sequence[AttemptOutcome],
        *,
        servers: ServerAddresses | None = None,
        patience: float = 3600,
        takes: float = 0,
    ) -> None:
        self.now = 0.0
        self.sent: list[SendRequest] = []
        self.pauses: list[float] = []
        self.servers = servers or ServerAddresses([A])
        manners = RetryPolicy("t0ken", patience, clock=lambda: self.now, jitter=lambda: 1.0)
        steps = call_with_retries(call, self.servers, manners)
        answer = came if callable(came) else _one_after_another(came)
        said: AttemptOutcome = None
        try:
            while True:
                step = steps.send(said)
                if isinstance(step, Backoff):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    said = None
                else:
                    self.sent.append(step)
                    self.now += takes
                    said = answer(step)
        except StopIteration as done:
            self.answer = done.value

    @property
    def keys(self) -> list[str]:
        return [one.headers.get("Idempotency-Key", "") for one in self.sent]

    @property
    def hosts(self) -> list[str]:
        return [
            one.url.removesuffix("/api/v1/me").removesuffix("/api/v1/beads") for one in self.sent
        ]


def test_an_answer_is_read_and_nothing_is_tried_again():
    talk = Talk(GET, [OK])
    assert talk.answer == {"ok": True}
    assert len(talk.sent) == 1
    assert talk.sent[0].url == "http://a:1/api/v1/me"
    assert talk.sent[0].headers["Authorization"] == "Bearer t0ken"


@pytest.mark.requirement("L8.7")
def test_every_try_of_a_post_has_the_same_key_and_every_post_another():
    first = Talk(POST, [CUT, busy(502), busy(503), busy(504), busy(429), OK])
    second = Talk(POST, [OK])
    assert len(set(first.keys)) == 1
    assert first.keys[0]
    assert second.keys[0] not in ("", first.keys[0])


def test_only_a_post_has_a_key():
    assert Talk(GET, [OK]).keys == [""]
    assert Talk(declared("PUT", "/x").call(), [OK]).keys == [""]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 422, 500, 501, 302])
def test_any_other_answer_is_not_tried_again(status: int):
    with pytest.raises(ClientError) as raised:
        Talk(POST, [RawResponse(status, {}, b"")])
    assert raised.value.status == status


def test_pauses_double_up_to_a_limit_and_tries_are_counted():
    sent: list[SendRequest] = []

    def never(one: SendRequest) -> AttemptOutcome:
        sent.append(one)
        return CUT

    with pytest.raises(UnreachableError) as raised:
        Talk(POST, never)
    assert len(sent) == TRIES_MAX
    told = str(raised.value)
    assert "POST /api/v1/beads: no server answers at http://a:1, tried 8 times" in told
    assert "connection refused" in told
    assert "HANDRAIL_SERVER" in told
    pauses = Talk(POST, [CUT] * 7 + [OK]).pauses
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, BACKOFF_SECONDS_MAX]


def test_patience_ends_it_before_the_tries_do():
    with pytest.raises(UnreachableError) as raised:
        Talk(POST, lambda _: CUT, patience=1.0)
    assert "tried 4 times" in str(raised.value)
    with pytest.raises(UnreachableError) as raised:
        Talk(POST, lambda _: CUT, patience=5.0, takes=10.0)
    assert "tried once" in str(raised.value)


def test_a_server_that_says_when_to_come_again_is_not_asked_sooner():
    talk = Talk(POST, [busy(429, retry_after="7"), OK])
    assert talk.pauses == [7.1]
    assert Talk(POST, [busy(503, retry_after="Thu, 01 Jan 2026 00:00:00 GMT"), OK]).pauses == [0.1]


def test_what_the_last_server_said_is_what_is_raised():
    with pytest.raises(ClientError) as raised:
        Talk(POST, lambda _: busy())
    assert raised.value.status == 503
    assert not isinstance(raised.value, UnreachableError)
    assert str(raised.value) == "POST /api/v1/beads (503): busy; come again"


def test_the_next_server_is_tried_at_once_and_the_one_that_works_is_stayed_with():
    servers = ServerAddresses([A, B, C])
    talk = Talk(POST, [CUT, busy(), OK], servers=servers)
    assert talk.hosts == [A, B, C]
    assert talk.pauses == []
    assert Talk(POST, [OK], servers=servers).hosts == [C]
    talk = Talk(POST, [CUT, CUT, CUT, OK], servers=servers)
    assert talk.hosts == [C, A, B, C]
    assert talk.pauses == [0.1]


def test_a_busy_server_is_not_waited_for_while_there_is_another():
    servers = ServerAddresses([A, B])
    talk = Talk(POST, [busy(503, retry_after="7"), OK], servers=servers)
    assert (talk.hosts, talk.pauses) == ([A, B], [])
    talk = Talk(POST, [busy(503, retry_after="7"), busy(503, retry_after="2"), OK], servers=servers)
    assert talk.pauses == [2.1]
    assert Talk(POST, [busy(429, retry_after="7"), OK], servers=servers).pauses == [7.1]


def test_many_calls_that_fail_at_once_go_on_to_the_same_server():
    servers = ServerAddresses([A, B, C])
    servers.mark_failed(A)
    servers.mark_failed(A)
    assert servers.current == B


def test_a_problem_document_is_all_on_the_error():
    body = (
        b'{"type": "urn:handrail:problem:invalid_definition", "title": "Unprocessable Entity",'
        b' "status": 422, "code": "invalid_definition", "detail": "the definition has 4 errors",'
        b' "errors": [{"code": "c", "path": "nodes[0]", "message": "no role", "hint": "name one"},'
        b' {"code": "c", "path": "b", "message": "m"}, {"code": "c", "path": "c", "message": "m"},'
        b' {"code": "c", "path": "d", "message": "m"}]}'
    )
    with pytest.raises(InvalidRequestError) as raised:
        Talk(POST, [RawResponse(422, {}, body)])
    error = raised.value
    assert (error.status, error.code, error.title) == (
        422,
        "invalid_definition",
        "Unprocessable Entity",
    )
    assert [one.path for one in error.errors] == ["nodes[0]", "b", "c", "d"]
    assert str(error) == (
        "POST /api/v1/beads (422): the definition has 4 errors; nodes[0]: no role (name one); "
        "b: m; c: m; and 1 more"
    )


def test_an_answer_that_is_no_problem_document_still_makes_one_line():
    with pytest.raises(AccessDeniedError) as denied:
        Talk(GET, [RawResponse(401, {}, b"<html>\n<h1>Go away</h1>\n</html>")])
    assert str(denied.value) == (
        "GET /api/v1/me (401): <html> <h1>Go away</h1> </html>; "
        "set HANDRAIL_TOKEN to a token that is valid (handrail token create)"
    )
    with pytest.raises(ConflictError) as conflict:
        Talk(GET, [RawResponse(409, {}, b"")])
    assert str(conflict.value) == "GET /api/v1/me (409): Conflict"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b""])
def test_an_answer_that_cannot_be_read_is_told_as_that(body: bytes):
    with pytest.raises(ClientError, match="is this a Handrail server of this version"):
        Talk(GET, [RawResponse(200, {}, body)])


def test_addresses_are_read_from_a_text_or_a_list():
    assert parse_addresses("http://a:1/, https://b") == ["http://a:1", "https://b"]
    assert parse_addresses(["http://a:1", "http://a:1"]) == ["http://a:1"]
    assert parse_addresses("") == []
    for wrong in ("a:1", "ftp://a", "http://", "http://a/?x=1"):
        with pytest.raises(ValueError, match="write http://HOST:PORT"):
            parse_addresses(wrong)


def test_an_id_cannot_lead_to_another_call():
    assert BeadCalls.get.call("../tokens").path == "/api/v1/beads/..%2Ftokens"
    path = BeadCalls.get_file.call("a?b=c#d", "ü.txt").path
    assert path == "/api/v1/beads/a%3Fb%3Dc%23d/files/%C3%BC.txt"
    for wrong in ("", ".", ".."):
        with pytest.raises(ValueError, match="is not an id"):
            BeadCalls.get.call(wrong)
