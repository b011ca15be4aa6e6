"""A sample shop with bugs, an engine that heals it, and people who push and answer by hand."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.commits.sample_repository import git

from handrail.engine import opening
from handrail.engine.engine import Engine
from handrail.engine.services.runs import RunHandle
from handrail.kernel.run.state import PendingApproval, Person
from handrail.teams import HEALING_DEFINITION_ID, install_teams
from handrail.teams.healing.sample_shop import load_bugs, make_shop
from handrail.views.bugs import ErrorReport

ANA = Person(name="ana", role="ceo")
PATIENCE = float(os.environ.get("HANDRAIL_PATIENCE", "20")) * 15
"""Seconds after which a run that should have come further has not."""
FAILED = {
    "missing-self": ("NameError", "name 'rate' is not defined", "shop/people.py", "costs"),
    "misspelt-attribute": (
        *("AttributeError", "'Person' object has no attribute 'nmae'"),
        *("shop/people.py", "hello"),
    ),
    "wrong-comparison": ("ZeroDivisionError", "division by zero", "shop/orders.py", "share"),
    "protected": ("IndexError", "tuple index out of range", "vendor/weights.py", "boxed"),
}
"""Bug -> what the shop reports of it: type, message, file, function."""


def error_report(bug: str) -> ErrorReport:
    """What the middleware would report of it."""
    kind, message, file, function = FAILED[bug]
    told = f'Traceback (most recent call last):\n  File "/srv/shop/{file}", line 1, in {function}'
    request = load_bugs()[bug].request
    return ErrorReport(
        service="shop",
        type=kind,
        message=message,
        traceback=f"{told}\n    a line\n{kind}: {message}",
        method=request.method,
        route=request.path,
        status=500,
    )


class HealingShop:
    """`mine` is a person's clone of the shop's repository."""

    def __init__(self, folder: Path, *wrong: str) -> None:
        self.service = make_shop(folder, wrong)
        self.bare, self.mine = Path(self.service.repository.url), folder / "mine"
        git(folder, "clone", "--quiet", str(self.bare), str(self.mine))

    @asynccontextmanager
    async def healed(self, url: str = "sqlite://", **employed: Any) -> AsyncIterator[Engine]:
        async with opening.open(url) as engine:
            await install_teams(engine, [HEALING_DEFINITION_ID], service=self.service, **employed)
            yield engine

    async def report(self, engine: Engine, bug: str) -> RunHandle:
        """What the middleware would report of it."""
        filed = await engine.bugs.report(error_report(bug), by="shop")
        assert filed.execution_id is not None
        return engine.run(filed.execution_id)

    def push(self, path: str, text: str) -> None:
        """What a person commits by hand."""
        git(self.mine, "pull", "--quiet")
        (self.mine / path).write_text(text)
        git(self.mine, "add", "--all")
        git(self.mine, "commit", "--quiet", "-m", f"change {path}")
        git(self.mine, "push", "--quiet")

    def read(self, path: str) -> str:
        return git(self.bare, "show", f"main:{path}")

    def log(self, form: str = "%s") -> list[str]:
        """The newest first."""
        return git(self.bare, "log", f"--format={form}", "main").splitlines()


async def question(run: RunHandle, kind: str) -> PendingApproval:
    """The next question, which is of this kind."""
    found = await run.questions(PATIENCE)
    assert [one.kind for one in found] == [kind], (await run.report()).stop or found
    return found[0]


async def approve(run: RunHandle) -> dict[str, Any]:
    """The proposal that is asked about, approved."""
    asked = await question(run, "approval")
    proposal = (await run.state()).context["proposal"]
    await run.answer(asked.id, by=ANA, decision="approve")
    return proposal
