"""A conversation on the page: a person watches turns, interrupts, and takes them in hand."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.page.channel_agents import Talk, clear
from tests.page.site import NARROW, Site

WIDTH = """() => Math.max(
  document.scrollingElement.scrollWidth, document.querySelector('main').scrollWidth)"""


@pytest.fixture
def site(lasting: Site) -> Iterator[Site]:
    """Without any channel, before and after."""
    yield lasting
    lasting.close_pages()
    clear(lasting)


def holder(page: Page) -> Locator:
    """Whoever has the turn, in the ring."""
    return page.locator(".seat-active .seat-name")


def send(page: Page, text: str) -> Locator:
    """Says it, with the keyboard alone; what is told of it."""
    page.keyboard.press("r")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    line = page.locator(".line-person", has_text=text)
    expect(line).to_be_visible()
    expect(page.get_by_label("Say something")).to_have_value("")
    page.keyboard.press("Escape")
    return page.locator(".receipt")


@pytest.fixture
def talk(site: Site, request: pytest.FixtureRequest) -> tuple[Talk, Page]:
    """Three agents, the first in its turn, with something said; and a person who looks on."""
    talk = Talk(site, request.param)
    talk.say("ada", "I have read it.")
    page = site.visit(talk.path)
    expect(page.locator(".line-agent")).to_contain_text("I have read it.")
    expect(holder(page)).to_have_text("ada")
    return talk, page


@pytest.mark.requirement("T6")
@pytest.mark.parametrize("talk", ["inject"], indirect=True)
def test_injected_the_word_reaches_the_agent_in_its_turn_which_goes_on(talk: tuple[Talk, Page]):
    room, page = talk
    expect(page.locator(".hint")).to_contain_text("reaches the agent that has the turn, at once")
    expect(send(page, "Mind the tests")).to_contain_text("ada has it.")
    assert room.given("ada") == ["Mind the tests"]
    assert room.view().active == "ada"
    room.say("ada", "The tests sleep.")
    expect(page.locator(".line").last).to_contain_text("The tests sleep.")
    expect(holder(page), "the turn went on").to_have_text("ada")


@pytest.mark.requirement("T6")
@pytest.mark.parametrize("talk", ["queue"], indirect=True)
def test_queued_the_word_waits_for_the_end_of_the_turn(talk: tuple[Talk, Page]):
    room, page = talk
    expect(send(page, "Mind the tests")).to_contain_text("waits for the end of the turn of ada")
    assert room.given("ada") == []
    assert "Mind the tests" not in room.reads("ada")
    expect(holder(page)).to_have_text("ada")
    room.done("ada")
    expect(holder(page)).to_have_text("bo")
    assert room.given("bo") == ["I have read it.", "Mind the tests"]


@pytest.mark.requirement("T6", "T10")
@pytest.mark.parametrize("talk", ["interrupt"], indirect=True)
def test_interrupting_the_word_pauses_the_turn_and_is_read_when_a_person_resumes_it(
    talk: tuple[Talk, Page],
):
    room, page = talk
    expect(send(page, "Wait a moment")).to_contain_text("The turn of ada is paused")
    expect(page.locator(".seat-waiting .seat-name")).to_have_text("ada")
    expect(page.get_by_text("A person has paused the turn of ada.")).to_be_visible()
    expect(page.locator(".ring-word", has_text="paused")).to_be_visible()
    assert room.given("ada") is None, "nobody may answer"
    page.get_by_role("button", name="Resume").click()
    expect(holder(page)).to_have_text("ada")
    assert room.given("ada") == ["Wait a moment"]


@pytest.mark.requirement("T6")
@pytest.mark.parametrize("talk", ["parallel"], indirect=True)
def test_in_parallel_the_word_reaches_everybody_in_the_queue(talk: tuple[Talk, Page]):
    room, page = talk
    expect(send(page, "To all of you")).to_contain_text("Everybody in the queue has it.")
    assert all("To all of you" in room.reads(agent) for agent in ("ada", "bo", "cy"))
    expect(holder(page), "the turn went on").to_have_text("ada")
    room.done("ada")
    expect(holder(page)).to_have_text("bo")
    assert room.given("bo") == ["I have read it.", "To all of you"]


@pytest.mark.requirement("T10")
def test_a_person_overrides_a_wait_either_way(site: Site):
    room = Talk(site)
    page = site.visit(room.path)
    room.waits("ada")
    expect(page.get_by_text("and waits. It loses the turn in")).to_be_visible()
    page.get_by_role("button", name="Override: fresh time").click()
    expect(holder(page)).to_have_text("ada")
    room.waits("ada")
    page.get_by_role("button", name="Override: end the turn").click()
    expect(holder(page)).to_have_text("bo")
    assert room.view().states["ada"] == "QUEUED"


def test_a_person_makes_a_channel_lets_agents_in_and_grants_every_turn(site: Site):
    for agent in ("ada", "bo"):
        site.do(site.engine.agents.register(agent, ["reviewer"]))
    page = site.visit("/channels", role="operator", name="olga")
    expect(page.get_by_text("No channels yet")).to_be_visible()
    page.get_by_role("button", name="New channel").click()
    page.get_by_label("Name").fill("plans")
    page.get_by_label("Who is next").select_option("manual")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("There is no agent in this channel yet.")).to_be_visible()
    members = page.locator(".members li")
    for n, agent in enumerate(("ada", "bo"), 1):
        page.get_by_label("Which agent").select_option(agent)
        page.get_by_role("button", name="Let in").click()
        expect(members).to_have_count(n)
    expect(page.get_by_text("Nobody has the turn: grant it to one of them.")).to_be_visible()
    page.get_by_label("To whom").select_option("bo")
    page.get_by_role("button", name="Grant the turn").click()
    expect(holder(page)).to_have_text("bo")
    page.get_by_role("button", name="Remove bo").click()
    expect(members).to_have_count(1)
    page.get_by_role("button", name="Remove this channel").click()
    page.get_by_role("button", name="Really remove").click()
    expect(page.get_by_text("No channels yet")).to_be_visible()
    assert not site.wrong


def test_a_paused_channel_grants_no_turn_until_somebody_goes_on(site: Site):
    room = Talk(site)
    page = site.visit(room.path)
    expect(holder(page)).to_have_text("ada")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Unpause")).to_be_visible()
    room.done("ada")
    expect(page.get_by_text("Nobody has the turn: the channel is paused.")).to_be_visible()
    page.keyboard.press("p")
    expect(holder(page)).to_have_text("bo")


@pytest.mark.requirement("T14")
def test_a_channel_that_rests_says_why_and_a_word_wakes_it(site: Site):
    room = Talk(site)
    page = site.visit(room.path)
    for agent in ("ada", "bo", "cy"):
        room.done(agent)
    expect(page.get_by_text("Nobody has the turn: the channel rests")).to_be_visible()
    expect(page.locator(".line-notice")).to_be_visible()
    expect(send(page, "Go on")).to_contain_text("It has reached an agent")
    expect(holder(page)).to_have_text("ada")


@pytest.mark.requirement("T11")
def test_the_mode_is_changed_where_it_is_explained(site: Site):
    room = Talk(site, defaultTimeoutSeconds=1234.0)
    page = site.visit(room.path)
    expect(page.get_by_role("radio", name="Inject")).to_be_checked()
    page.get_by_role("radio", name="Parallel").click()
    expect(page.locator(".hint")).to_contain_text("everybody in the queue")
    config = room.view().turn_config
    assert (config.human_interrupt_mode, config.default_timeout_seconds) == ("parallel", 1234)


def test_who_may_only_look_is_told_so_and_changes_nothing(site: Site):
    room = Talk(site)
    page = site.visit(room.path, role="viewer", name="vera")
    expect(page.get_by_text("You are viewer; to speak here takes an operator.")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    expect(page.get_by_role("radio", name="Queue It waits")).to_be_disabled()


def test_a_word_is_said_once_even_if_its_answer_is_lost(site: Site):
    room = Talk(site)
    page = site.visit(room.path)
    page.get_by_label("Say something").fill("only once")

    def lost(route):
        route.fetch()
        route.abort()

    page.route("**/messages", lost, times=1)
    page.get_by_label("Say something").press("Enter")
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    expect(page.get_by_label("Say something")).to_have_value("only once")
    page.get_by_label("Say something").press("Enter")
    expect(page.get_by_label("Say something")).to_have_value("")
    expect(page.locator(".line", has_text="only once")).to_have_count(1)
    assert room.reads("ada") == ["only once"]


def test_of_a_long_conversation_the_end_is_shown_and_the_rest_when_asked_for(site: Site):
    room = Talk(site)
    for n in range(600):
        room.say("ada", f"Line {n}")
    page = site.visit(room.path)
    expect(page.locator(".line").last).to_contain_text("Line 599")
    assert page.locator(".line").count() <= 500
    page.locator(".log-lines").evaluate("it => it.scrollTo({ top: 0 })")
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator(".line").first).to_contain_text("Line 0")
    room.say("ada", "And one more")
    page.locator(".log-lines").evaluate("it => it.scrollTo({ top: 0 })")
    page.get_by_role("button", name="1 new").click()
    expect(page.locator(".line").last).to_be_in_viewport()


def test_on_a_phone_a_channel_is_read_and_answered(site: Site):
    room = Talk(site)
    room.say("ada", "word " * 200)
    page = site.visit("/channels", size=NARROW)
    page.get_by_role("link", name="reviews").click()
    expect(page.locator(".line")).to_be_visible()
    assert page.evaluate(WIDTH) <= NARROW[0]
    page.get_by_label("Say something").fill("from afar")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".line-person")).to_contain_text("from afar")
    page.get_by_text("How people are heard, and who is here").click()
    expect(page.get_by_role("radio", name="Interrupt")).to_be_visible()
    assert page.evaluate(WIDTH) <= NARROW[0]
    page.get_by_role("link", name="All channels").click()
    expect(page.get_by_role("link", name="reviews")).to_be_visible()
