"""The least that can be served: an endpoint of the same framework that reads a small body and
answers with one. Run as `python -m benchmarks.http.bare PORT`."""

import sys
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, post


class Asked(msgspec.Struct):
    agent_id: str
    wait: float = 0


@post("/nothing", status_code=200)
async def nothing(data: Asked) -> dict[str, Any]:
    return {"accepted": True, "reason": "", "agent": data.agent_id}


if __name__ == "__main__":
    app = Litestar([nothing], openapi_config=None)
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", log_level="error", access_log=False)
