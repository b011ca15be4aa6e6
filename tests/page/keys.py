"""Keys that decide: they work once a question has been on screen for a second."""

from playwright.sync_api import Locator, Page, expect


def armed(page: Page) -> None:
    """The question in hand has been on screen long enough for a key to decide it."""
    expect(page.locator(".answer")).to_have_attribute("data-armed", "true")


def decide(page: Page, key: str) -> None:
    """A key that decides the question in hand, pressed where the focus is."""
    armed(page)
    page.keyboard.press(key)


def send(field: Locator, key: str = "Enter") -> None:
    """What stands in the field is sent as the answer to the question in hand."""
    armed(field.page)
    field.press(key)
