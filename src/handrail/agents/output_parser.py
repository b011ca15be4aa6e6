"""Parse the output of a program or the response of a service: a JSON object, or plain text.

In a team the text protocol reads a text. At a workflow's node, where there is no last line for it,
any text with exit code 0 or status 200 is a success.
"""

import msgspec

from handrail.kernel.decision import prepare_types
from handrail.kernel.result import Outcome, Result
from handrail.views.dispatches import DispatchView

prepare_types(Result)


def parse_output(output: bytes, dispatch: DispatchView) -> Result:
    """Return the result; `ValueError` says why there is none."""
    text = output.decode("utf-8").strip()
    if text.startswith("{"):
        return msgspec.json.decode(text.encode(), type=Result)
    return Result(outcome=Outcome.SUCCESS if dispatch.node else None, text=text)
