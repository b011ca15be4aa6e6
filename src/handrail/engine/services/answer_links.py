"""One-time links to questions, for whoever makes them. Secrets stay outside: what comes here are
digests.

A link is one person's answer to one question. That it is used once is a matter of the answer's own
transaction (its key is the link's id); here it is only written down, so that it can be told.
"""

from handrail.engine.errors import RefusedError
from handrail.engine.pagination import refuse
from handrail.engine.services.approvals import WithApprovals
from handrail.kernel.run import human_commands
from handrail.kernel.run.state import Person
from handrail.store.engine_store import iso
from handrail.store.notifications import APPROVAL_LINKS_MAX, AnswerLinkRow


class WithAnswerLinks(WithApprovals):
    """An engine that knows which links were given out."""

    async def add_link(self, row: AnswerLinkRow) -> None:
        """Refused: too_many_links."""
        self._check_open()
        if (
            not await self._call_store(self.store.add_answer_link, row)
            and await self.link(row.digest) is None
        ):
            message = f"'{row.approval_id}' has {APPROVAL_LINKS_MAX} links already"
            refuse("too_many_links", message, "use one of them")

    async def link(self, digest: str) -> AnswerLinkRow | None:
        """Also one that was used, or has expired."""
        return await self._call_store(self.store.get_answer_link, digest)

    async def use_link(self, link_id: str) -> None:
        self._check_open()
        await self._call_store(self.store.use_answer_link, link_id, iso(self.clock()))

    async def check_may_answer(self, approval_id: str, person: Person) -> None:
        """Refused as an answer of that person would be now, whatever it says."""
        run = await self.state(approval_id.rpartition(".q")[0])
        pending = run.pending_approvals.get(approval_id)
        if pending is None:
            refuse("not_open", f"'{approval_id}' is not open", "look at the list of approvals")
        refusal = human_commands.check_may_answer(pending, person)
        if refusal is not None:
            raise RefusedError(refusal)
