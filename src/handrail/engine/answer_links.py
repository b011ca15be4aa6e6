"""One-time links to questions, for whoever makes them. Secrets stay outside: what comes here are
digests.

A link is one person's answer to one question. That it is used once is a matter of the answer's own
transaction (its key is the link's id); here it is only written down, so that it can be told.
"""

from handrail.engine.approvals import WithApprovals
from handrail.engine.pages import refuse
from handrail.engine.refused import Refused
from handrail.kernel.run import people
from handrail.kernel.run.state import Person
from handrail.store.port import iso
from handrail.store.reviews import LINKS_MAX, LinkRow


class WithLinks(WithApprovals):
    """An engine that knows which links were given out."""

    async def add_link(self, row: LinkRow) -> None:
        """Refused: too_many_links."""
        self._check()
        if not await self._io(self.store.add_link, row) and await self.link(row.digest) is None:
            told = f"'{row.approval_id}' has {LINKS_MAX} links already"
            refuse("too_many_links", told, "use one of them")

    async def link(self, digest: str) -> LinkRow | None:
        """Also one that was used, or has expired."""
        return await self._io(self.store.link, digest)

    async def use_link(self, link_id: str) -> None:
        self._check()
        await self._io(self.store.use_link, link_id, iso(self.clock()))

    async def check_may_answer(self, approval_id: str, person: Person) -> None:
        """Refused as an answer of that person would be now, whatever it says."""
        run = await self.state(approval_id.rpartition(".q")[0])
        question = run.questions.get(approval_id)
        if question is None:
            refuse("not_open", f"'{approval_id}' is not open", "look at the list of approvals")
        refusal = people.may_answer(question, person)
        if refusal is not None:
            raise Refused(refusal)
