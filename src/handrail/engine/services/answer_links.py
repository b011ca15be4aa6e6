"""One-time links to approvals. Secrets stay outside: this module gets digests only.

A link is one person's answer to one approval. The answer's own transaction makes sure that a link
is used once (its key is the link's id); this module only stores links, so that they can be shown.
"""

from handrail.engine.errors import RefusedError
from handrail.engine.pagination import refuse
from handrail.engine.services.approvals import WithApprovals
from handrail.kernel.run import human_commands
from handrail.kernel.run.state import Person
from handrail.store.engine_store import iso
from handrail.store.notifications import APPROVAL_LINKS_MAX, AnswerLinkRow


class WithAnswerLinks(WithApprovals):
    """An engine that stores answer links."""

    async def add_link(self, row: AnswerLinkRow) -> None:
        """Store a link. Refused: too_many_links."""
        self._check_open()
        if (
            not await self._call_store(self.store.add_answer_link, row)
            and await self.link(row.digest) is None
        ):
            message = f"'{row.approval_id}' has {APPROVAL_LINKS_MAX} links already"
            refuse("too_many_links", message, "use one of them")

    async def link(self, digest: str) -> AnswerLinkRow | None:
        """Return a link, even if it was used or has expired."""
        return await self._call_store(self.store.get_answer_link, digest)

    async def use_link(self, link_id: str) -> None:
        self._check_open()
        await self._call_store(self.store.use_answer_link, link_id, iso(self.clock()))

    async def check_may_answer(self, approval_id: str, person: Person) -> None:
        """Refuse what an answer of that person would be refused for now, whatever its text."""
        run = await self.state(approval_id.rpartition(".q")[0])
        pending = run.pending_approvals.get(approval_id)
        if pending is None:
            refuse("not_open", f"'{approval_id}' is not open", "look at the list of approvals")
        refusal = human_commands.check_may_answer(pending, person)
        if refusal is not None:
            raise RefusedError(refusal)
