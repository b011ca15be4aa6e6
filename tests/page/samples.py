"""A site with something to see in every view: the samples of the demonstration, some answered, and
a conversation."""

from tests.page.channel_agents import Talk
from tests.page.site import Site

from handrail.cli.demo_server import SAMPLES
from handrail.kernel.run.state import Person


def filled(site: Site) -> dict[str, str]:
    """Every sample filed, and the first revision of the invoice said; runs by their titles."""
    runs = {one.title: site.file(one.definition, one.title, context=one.context) for one in SAMPLES}
    for run in runs.values():
        site.settled(run)
    invoice = next(run for title, run in runs.items() if title.startswith("Invoice"))
    answer(site, invoice, "with 10% tax")
    conversation(site)
    return runs


ROOM = "/channels/reviews"


def conversation(site: Site) -> None:
    """The channel `reviews` in its second turn, and two others."""
    talk = Talk(
        site, agents=("ada", "bo", "cy", "dora"), name="reviews", defaultTimeoutSeconds=900.0
    )
    talk.post("Please look at #12: the queue loses messages when a worker is restarted.")
    talk.say("ada", "I have read the diff.\n\n- `claim` is not atomic\n- one test sleeps")
    talk.done("ada")
    talk.say("bo", "I agree with ada. The index is missing, too.")
    talk.post("What about SQLite?")
    paused = Talk(site, "interrupt", agents=("eve", "finn"), name="release")
    paused.say("eve", "I am rolling it out.")
    paused.post("Stop, please: the tests are red.")
    Talk(site, "queue", agents=(), name="stand-up")


def answer(site: Site, run: str, text: str) -> None:
    """The open question of that run, answered by a person; then it stands again."""
    site.do(
        site.engine.approvals.answer(question(site, run), text, by=Person(name="ana", role="ceo"))
    )
    site.settled(run)


def question(site: Site, run: str) -> str:
    """The id of the open question of that run."""
    (one,) = site.do(site.engine.approvals.list(status="open", execution_id=run)).items
    return one.id
