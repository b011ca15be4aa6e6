"""A site with something to see in every view: the samples of the demonstration, some answered."""

from tests.page.site import Site

from handrail.cli.demo import SAMPLES
from handrail.kernel.run.state import Person


def filled(site: Site) -> dict[str, str]:
    """Every sample filed, and the first revision of the invoice said; runs by their titles."""
    runs = {one.title: site.file(one.definition, one.title, context=one.context) for one in SAMPLES}
    for run in runs.values():
        site.settled(run)
    invoice = next(run for title, run in runs.items() if title.startswith("Invoice"))
    answer(site, invoice, "with 10% tax")
    return runs


def answer(site: Site, run: str, text: str) -> None:
    """The open question of that run, answered by a person; then it stands again."""
    site.do(site.engine.answer(question(site, run), text, by=Person(name="ana", role="ceo")))
    site.settled(run)


def question(site: Site, run: str) -> str:
    """The id of the open question of that run."""
    (one,) = site.do(site.engine.approvals(status="open", execution_id=run)).items
    return one.id
