"""What a program printed or a service answered becomes a result: a JSON object, or plain text.

A text is the text protocol's business in a team. At a workflow's node, where there is no last line
for it, whoever says something and says that all went well (exit code 0, status 200) has succeeded.
"""

import msgspec

from handrail.engine.dispatch.dispatch import DispatchView
from handrail.kernel.decision import prepare_types
from handrail.kernel.result import Outcome, Result

prepare_types(Result)


def parse_output(output: bytes, dispatch: DispatchView) -> Result:
    """The result; `ValueError` says why it is none."""
    text = output.decode("utf-8").strip()
    if text.startswith("{"):
        return msgspec.json.decode(text.encode(), type=Result)
    return Result(outcome=Outcome.SUCCESS if dispatch.node else None, text=text)
