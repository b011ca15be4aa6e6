"""Following events: nothing missed and nothing twice, whatever breaks. No I/O."""

from typing import Any

import pytest

from handrail.api.operation import VIEWER, event_stream
from handrail.api.runs import PositionQuery, StreamEvent
from handrail.client import sse as streaming
from handrail.client.errors import ClientError, NotFoundError, UnreachableError
from handrail.client.retry import (
    AttemptOutcome,
    Backoff,
    RawResponse,
    RetryPolicy,
    SendRequest,
    ServerAddresses,
    TransportFailure,
)
from handrail.client.sse import (
    EventReceived,
    OpenStream,
    SSEFrame,
    SSEParser,
    follow_stream,
)

OPENED = RawResponse(200, {}, b"")
CUT = TransportFailure("reset")


def sent(seq: int, kind: str = "moved") -> bytes:
    return (
        f"id: {seq}\r\nevent: {kind}\r\ndata: "
        f'{{"execution_id": "r", "seq": {seq}, "type": "{kind}", "at": "2026-01-01T00:00:00Z"}}'
        "\r\n\r\n"
    ).encode()


def _follow(self: object, after: str = "") -> StreamEvent: ...


class Follow:
    """A stream played with what each opening and reading gives."""

    def __init__(self, *came: Any, last: str = "ended", after: str = "", patience: float = 60):
        self.opened: list[SendRequest] = []
        self.found: list[StreamEvent] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.servers = ServerAddresses(["http://a:1", "http://b:1"])
        manners = RetryPolicy("", patience, clock=lambda: self.now, jitter=lambda: 1.0)
        stream = event_stream("/events", query=PositionQuery, last_type=last, access=VIEWER)
        call = stream(_follow).call(after)
        steps = follow_stream(call, self.servers, manners)
        answers = iter(came)
        said: AttemptOutcome | bytes = None
        try:
            while True:
                step = steps.send(said)
                said = None
                if isinstance(step, EventReceived):
                    self.found.append(step.event)
                elif isinstance(step, Backoff):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                else:
                    if isinstance(step, OpenStream):
                        self.opened.append(step.request)
                    said = next(answers, CUT)
        except StopIteration:
            pass

    @property
    def seqs(self) -> list[int]:
        return [one.seq for one in self.found]

    @property
    def resumed(self) -> list[str]:
        return [one.headers.get("Last-Event-ID", "") for one in self.opened]


def test_frames_are_whole_whatever_the_chunks():
    text = b": hello\n\nid: 1\nevent: a\ndata: {\ndata: }\n\n:\r\n\r\n"
    text += b"id:2\r\ndata:x\xe2\x80\xa8y\r\n\r\ndata: z"
    whole = list(SSEParser().feed(text))
    nothing_said = SSEFrame("", "", "")
    first, second = SSEFrame("1", "a", "{\n}"), SSEFrame("2", "", "x\u2028y")
    assert whole == [nothing_said, first, SSEFrame("1", "", ""), second]
    for size in (1, 2, 3, 7):
        frames = SSEParser()
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert [frame for piece in pieces for frame in frames.feed(piece)] == whole


def test_a_run_is_followed_to_its_last_event():
    follow = Follow(OPENED, sent(1) + sent(2), sent(3, "ended"))
    assert follow.seqs == [1, 2, 3]
    assert follow.found[0].data["execution_id"] == "r"
    assert follow.resumed == [""]


def test_a_stream_that_breaks_is_opened_again_where_it_was_and_elsewhere():
    half = sent(2)
    follow = Follow(
        OPENED, sent(1) + half[:30], CUT, OPENED, sent(2), b"", OPENED, sent(3, "ended")
    )
    assert follow.seqs == [1, 2, 3]
    assert follow.resumed == ["", "1", "2"]
    assert [one.url.split("/")[2] for one in follow.opened] == ["a:1", "b:1", "a:1"]


def test_what_was_seen_is_not_shown_again():
    follow = Follow(OPENED, sent(1) + sent(2), CUT, OPENED, sent(2) + sent(3, "ended"))
    assert follow.seqs == [1, 2, 3]


def test_a_stream_that_only_says_where_it_is_goes_on_from_there():
    follow = Follow(OPENED, b":\nid: 41-0\n\n", CUT, OPENED, sent(42, "ended"))
    assert follow.seqs == [42]
    assert follow.resumed == ["", "41-0"]


def test_it_begins_where_it_is_told_to():
    assert Follow(OPENED, sent(8, "ended"), after="7").resumed == ["7"]


def test_who_has_seen_everything_is_told_that_there_is_no_more():
    assert Follow(RawResponse(204, {}, b""), after="9").seqs == []


def test_a_stream_that_cannot_be_opened_is_tried_again_and_then_given_up():
    follow = Follow(CUT, RawResponse(503, {}, b""), OPENED, sent(1, "ended"))
    assert follow.seqs == [1]
    with pytest.raises(UnreachableError, match="no server answers at http://a:1 and http://b:1"):
        Follow()


def test_patience_begins_anew_whenever_a_server_answers():
    quiet = [OPENED, b": still here\n\n", CUT]
    follow = Follow(*quiet * 200, OPENED, sent(1, "ended"), patience=10)
    assert follow.seqs == [1]
    assert follow.now > 100


def test_a_stream_without_an_end_to_an_event_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "FRAME_BYTES_MAX", 100)
    with pytest.raises(ClientError, match="has more than"):
        Follow(OPENED, *[b"data: x\n"] * 20)


def test_a_stream_that_is_not_there_is_an_error_at_once():
    with pytest.raises(NotFoundError):
        Follow(RawResponse(404, {}, b""))


def test_the_feed_of_everything_has_no_last_event():
    with pytest.raises(UnreachableError):
        Follow(OPENED, sent(1, "ended") + sent(2), last="")
