"""The report in a real browser: headless Chromium. Without one these tests are skipped, unless
FEDMAP_BROWSER=1 says that there must be one."""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import fedmap
from fedmap.report.page.serve import HOST, server

CHROMIUM = shutil.which("chromium")
WANTED = os.environ.get("FEDMAP_BROWSER") == "1"
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not WANTED, reason="there is no chromium on the path"
)
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "FEDMAP_BROWSER=1, but there is no chromium on the path"
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(hostile_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report") / "report.html"
    return fedmap.write_report(hostile_runs, out=out).as_uri()


class Seen(list[str]):
    """What a page must not do: errors, warnings, requests."""


def opened(browser: Browser, address: str, **look: Any) -> tuple[BrowserContext, Page, Seen]:
    """The page once its charts are drawn."""
    context = browser.new_context(**look)
    page, seen = context.new_page(), Seen()
    page.on("console", lambda message: seen.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error: {error}"))
    page.on("request", lambda r: None if r.url == address else seen.append(f"asks: {r.url}"))
    page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
    page.goto(address)
    page.wait_for_selector("body[data-ready=yes]")
    return context, page, seen


@pytest.fixture(scope="module")
def opened_once(browser: Browser, report: str) -> Iterator[tuple[Page, Seen]]:
    context, page, seen = opened(browser, report, viewport={"width": 1200, "height": 900})
    yield page, seen
    context.close()


@pytest.fixture
def light(opened_once: tuple[Page, Seen]) -> Iterator[Page]:
    """A page that the tests share, so that each puts back what it changes."""
    page, seen = opened_once
    yield page
    assert seen == []


def marks(page: Page, chart: str, kind: str) -> int:
    """How many marks of a kind a chart shows."""
    return page.locator(f'[data-chart="{chart}"] .mark-{kind}.role-mark path').count()


def test_every_chart_is_drawn_without_an_error_or_a_request(light: Page) -> None:
    places = light.locator(".chart")
    assert places.count() == 14
    for i in range(places.count()):
        box = places.nth(i).locator("svg").bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) > 50


def test_charts_have_a_mark_for_each_number(light: Page) -> None:
    assert marks(light, "curves-personal", "line") == 3
    assert marks(light, "curves-global", "line") == 2  # who trains alone has no global model
    assert marks(light, "gains-client", "symbol") == 2 * 4
    assert marks(light, "holdings", "rect") == 2 + 2 + 2 + 3


def test_the_legend_switches_a_method_off_and_on_everywhere(light: Page) -> None:
    button = light.get_by_role("button", name="map", exact=True)
    row = light.locator("#methods tbody tr", has_text="map")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(row).to_have_class(re.compile("off"))
    expect(light.locator('[data-chart="curves-personal"] .mark-line.role-mark path')).to_have_count(
        2
    )
    assert marks(light, "gains-client", "symbol") == 4
    button.click()
    expect(light.locator('[data-chart="curves-personal"] .mark-line.role-mark path')).to_have_count(
        3
    )
    expect(row).not_to_have_class(re.compile("off"))


def test_a_click_on_a_head_sorts_by_number_and_another_turns_it(light: Page) -> None:
    def column() -> list[str]:
        return light.locator("#methods tbody tr td:nth-child(2)").all_text_contents()

    head = light.locator("#methods th").nth(1)
    number = [float(text.split()[0]) for text in column() if text != "-"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert column()[-1] == "-"  # what is not known is last, either way
    assert [float(text.split()[0]) for text in column()[:-1]] == sorted(number)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert column()[-1] == "-"
    assert [float(text.split()[0]) for text in column()[:-1]] == sorted(number, reverse=True)


def test_hostile_names_show_as_text(light: Page) -> None:
    assert light.title() == "fedmap: arrays"
    assert light.locator("img, b").count() == 0
    assert light.locator("h1").count() == 1
    shown = light.locator('[data-chart="classes-global"] svg').text_content() or ""
    assert "<script>document" in shown
    assert "</script><h1>x" in shown
    light.get_by_text("Every client in numbers").click()
    expect(light.get_by_role("cell", name="<b>bergen</b>", exact=True).first).to_be_visible()


def test_hovering_shows_the_numbers_with_names_as_text(light: Page) -> None:
    light.locator('[data-chart="holdings"] .mark-rect.role-mark path').first.hover()
    tip = light.locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("</script><h1>x")
    assert tip.locator("h1").count() == 0


def test_another_method_can_be_looked_at_closer(light: Page) -> None:
    choice = light.get_by_label("Models of", exact=True)
    global_cells = light.locator('[data-chart="confusion-global"] .mark-rect.role-mark path')
    assert global_cells.count() > 0
    choice.select_option("local")
    expect(global_cells).to_have_count(0)
    choice.select_option("map")
    expect(global_cells).not_to_have_count(0)


def test_the_keyboard_reaches_and_works_every_control(light: Page) -> None:
    reached = []
    for _ in range(60):
        light.keyboard.press("Tab")
        reached.append(light.evaluate("document.activeElement.textContent.slice(0, 12)"))
    for wanted in ("To the numbe", "local", "map", "all / none", "global", "Every client"):
        assert wanted in [text.strip() for text in reached], wanted
    button = light.get_by_role("button", name="fedavg", exact=True)
    button.focus()
    for pressed in ("false", "true"):
        light.keyboard.press("Space")
        expect(button).to_have_attribute("aria-pressed", pressed)


def lightness(color: str) -> float:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3 / 255


def test_dark_mode_is_dark_with_light_letters_in_charts_too(browser: Browser, report: str) -> None:
    context, page, seen = opened(browser, report, color_scheme="dark")
    assert lightness(page.evaluate(BACKGROUND)) < 0.2
    letter = '[data-chart="curves-global"] .role-axis-label text'
    fill = page.locator(letter).first.evaluate("one => getComputedStyle(one).fill")
    assert lightness(fill) > 0.5
    page.emulate_media(media="print")  # on paper everything is light
    assert lightness(page.evaluate(BACKGROUND)) > 0.9
    fill = page.locator(letter).first.evaluate("one => getComputedStyle(one).fill")
    assert lightness(fill) < 0.5
    assert seen == []
    context.close()


def test_a_phone_needs_no_scrolling_to_the_side(browser: Browser, report: str) -> None:
    phone = {"width": 390, "height": 844}
    context, page, seen = opened(browser, report, viewport=phone, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for chart in page.locator(".chart svg").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    assert seen == []
    context.close()


def test_on_paper_settings_are_unfolded_and_nothing_sticks(light: Page) -> None:
    assert light.pdf(format="A4").startswith(b"%PDF")
    expect(light.locator("#settings details")).to_have_attribute("open", "")
    light.emulate_media(media="print")
    assert light.locator(".legend").evaluate("one => getComputedStyle(one).position") == "static"
    light.emulate_media(media="screen")


def test_a_served_page_shows_what_is_new_and_keeps_what_the_reader_changed(
    browser: Browser, hostile_runs: Path, tmp_path: Path
) -> None:
    for name in ("fedavg-0", "map-0"):
        shutil.copytree(hostile_runs / name, tmp_path / name)
    with server([tmp_path], every=100) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        try:
            address = f"http://{HOST}:{serving.server_port}/"
            context, page, seen = opened(browser, address)
            page.get_by_role("button", name="map", exact=True).click()
            page.locator("#look-confusion").select_option("fedavg")
            page.get_by_text("Every setting").click()
            page.evaluate("scrollTo(0, 1500)")
            shutil.copytree(hostile_runs / "local-0", tmp_path / "local-0")
            expect(page.get_by_role("button", name="local", exact=True)).to_be_visible(
                timeout=20_000
            )
            page.wait_for_selector("body[data-ready=yes]")
            off = page.get_by_role("button", name="map", exact=True)
            expect(off).to_have_attribute("aria-pressed", "false")
            expect(page.locator("#look-confusion")).to_have_value("fedavg")
            expect(page.locator("#settings details")).to_have_attribute("open", "")
            assert abs(page.evaluate("scrollY") - 1500) < 100  # there is a line more above
            assert seen == []
            context.close()
        finally:
            serving.shutdown()
            thread.join()


def test_the_page_has_the_numbers_of_the_runs(light: Page, hostile_runs: Path) -> None:
    finals = [json.loads((hostile_runs / f"map-{seed}/final.json").read_text()) for seed in (0, 1)]
    mean = 50 * sum(final["global_accuracy"] for final in finals)
    row = light.locator("#methods tbody tr", has_text="map").locator("td").nth(1)
    expect(row).to_contain_text(f"{mean:.1f} ±")
