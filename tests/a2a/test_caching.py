"""Cards may be kept, and a body of another type is refused with the protocol's own code."""

import json

import httpx
from tests.a2a.a2a_server import start_a2a_server
from tests.client.live_server import Server

CARD = "/.well-known/agent-card.json"


def test_a_card_may_be_kept_and_is_asked_for_again_by_its_tag(server: Server):
    token = {"authorization": f"Bearer {server.token('operator', 'ola')}"}
    with start_a2a_server(server) as address, httpx.Client(base_url=address) as http:
        public, own = http.get(CARD), http.get(CARD, headers=token)
        assert public.headers["cache-control"] == "public, max-age=300"
        assert own.headers["cache-control"] == "private, no-cache"
        for answer in (public, own):
            assert answer.headers["vary"] == "authorization"
        assert public.headers["etag"] != own.headers["etag"]
        for known in (own.headers["etag"], f'"x", W/{own.headers["etag"]}'):
            again = http.get(CARD, headers={**token, "if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == own.headers["etag"]
        other = http.get(CARD, headers={**token, "if-none-match": public.headers["etag"]})
        assert other.json() == own.json()


def test_a_call_of_another_content_type_is_refused_as_such(server: Server):
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}})
    token = {"authorization": f"Bearer {server.token('operator', 'ola')}"}
    with start_a2a_server(server) as address, httpx.Client(base_url=address) as http:

        def post(content_type: str) -> httpx.Response:
            return http.post("/", content=call, headers={**token, "content-type": content_type})

        refused = post("text/plain").json()
        assert refused["error"]["code"] == -32005
        assert "application/json" in refused["error"]["message"]
        assert "result" in post("application/json; charset=utf-8").json()
