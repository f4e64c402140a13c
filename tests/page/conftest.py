"""Instances and a browser for the tests of the status page."""

import pytest
import pytest_asyncio
from exporter_instance import instances
from playwright.async_api import async_playwright, expect

expect.set_options(timeout=20_000)  # only a page that hangs takes so long


@pytest.fixture
def instance():
    """One instance whose exporter is not started yet."""
    with instances() as make:
        yield make()


@pytest.fixture(scope="session")
def browser_path(tool):
    """Debian's browser, headless."""
    return tool("chromium-headless-shell")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(browser_path):
    """One browser for all tests of a process; each has its own window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser):
    """Opens a page in a window of its own; options are a browser context's. Its clock can be set ahead.

    Whatever its console says but what is `expected`, and whatever it asks of others than devherd, fails the test.
    """
    contexts, wrong = [], []

    async def open_window(url, expected=(), **options):
        context = await browser.new_context(**options)
        contexts.append(context)
        page = await context.new_page()
        origin = f"{url.partition('/#')[0].rstrip('/')}/"

        def said(text):
            if not any(each in text for each in expected):
                wrong.append(text)

        page.on("console", lambda message: said(message.text))
        page.on("pageerror", lambda error: said(str(error)))
        page.on("request", lambda request: None if request.url.startswith((origin, "data:")) else said(request.url))
        await page.clock.install()
        await page.goto(url)
        return page

    yield open_window
    for context in contexts:
        await context.close()
    assert wrong == []
