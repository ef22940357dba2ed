"""Every rule is backed by a page that says what the rule says, and applies where it says."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmap.diagnosis.numbers import Numbers
from fedmap.diagnosis.rules import RULES, Rule, advised, table

ROOT = Path(__file__).parents[2]
EVEN = Numbers(
    clients=10,
    classes=10,
    clients_that_miss=0,
    observed_from=1,
    missing_mean=0.0,
    missing_most=0,
    fewest_classes=10,
    rarest_class="0",
    holders=10,
    within=1.0,
    between=1.0,
    samples_least=400,
    samples_median=500,
    samples_most=600,
    tests_median=100,
    trained=8,
    start="the initial model",
    loss_most=1.0,
    moved=None,
    together=None,
    accuracy=0.9,
    download=0.85,
    download_own=0.85,
)
MISSING: dict[str, Any] = {
    "clients_that_miss": 1,
    "missing_mean": 0.1,
    "missing_most": 1,
    "fewest_classes": 9,
}


def section_of(rule: Rule) -> str:
    """The text below the heading that the rule names, to the next heading of its level."""
    page = (ROOT / rule.page).read_text()
    found = re.search(rf"^(#+) {re.escape(rule.section)}.*?(?=^\1 |\Z)", page, re.M | re.S)
    assert found, f"{rule.page} has no section {rule.section}"
    return found[0].replace("−", "-")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.advice[:40])
def test_every_number_of_a_rule_stands_on_the_page_that_backs_it(rule: Rule) -> None:
    text = section_of(rule)
    numbers = re.findall(r"\d+(?:\.\d+)?", rule.shown)
    assert numbers
    for number in set(numbers):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", text), (
            f"{rule.page} does not say {number}"
        )


def test_the_numbers_of_the_guide_to_choosing_stand_on_the_pages_it_links() -> None:
    guide = ROOT / "docs/guide/choosing.md"
    rows = [line for line in guide.read_text().splitlines() if line.startswith("| ")]
    for row in rows[2:]:
        pages = [guide.parent / link for link in re.findall(r"\]\((\.\./[^)]+)\)", row)]
        text = "".join(page.read_text() for page in pages)
        for number in re.findall(r"\d+\.\d", row):
            # "within 0.3 points" and "gains 17.7" are differences of two numbers of the page
            made = f"within {number} points" in row or f"gains {number}" in row
            assert made or number in text, f"{number} of {row}"


def test_the_guide_shows_all_rules() -> None:
    page = (ROOT / "docs/guide/inspect.md").read_text()
    assert table().markdown() in page, f"it should have\n{table().markdown()}"


def when(numbers: Numbers) -> set[str]:
    return {rule.when for rule in advised(numbers)}


def test_no_rule_applies_where_nothing_is_missing_or_skewed() -> None:
    assert not advised(EVEN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (MISSING, "clients miss classes"),
        ({"observed_from": 2}, "though clients have a sample"),
        ({"download": 0.79}, "accuracy drops"),
        (MISSING | {"moved": 0.5}, "missing proxies move"),
        (MISSING | {"fewest_classes": 3}, "3 classes or fewer"),
        (MISSING | {"missing_mean": 7.5}, "2.5 classes or fewer"),
        (MISSING | {"samples_median": 149}, "fewer than 150 samples"),
        ({"within": 2.0}, "no class is missing"),
        ({"tests_median": 99}, "test samples"),
        ({"loss_most": 2.31}, "training loss"),  # ln 10 is 2.303
        ({"run": {"global": 0.6, "personal": 0.8}}, "global model is 20 points"),
    ],
)
def test_a_rule_applies_where_it_says(change: dict[str, Any], words: str) -> None:
    assert any(words in rule for rule in when(replace(EVEN, **change)))


@pytest.mark.parametrize(
    "change",
    [
        {"download": 0.81},
        {"within": 1.9},
        {"loss_most": 2.30},
        {"run": {"global": 0.61, "personal": 0.8}},
        {"run": {"global": None, "personal": 0.8}},
    ],
)
def test_a_rule_does_not_apply_before(change: dict[str, Any]) -> None:
    assert not advised(replace(EVEN, **change))


@pytest.mark.parametrize("change", [{"missing_mean": 7.4}, {"samples_median": 150}])
def test_a_rule_for_few_classes_or_samples_does_not_apply_before(change: dict[str, Any]) -> None:
    assert when(replace(EVEN, **MISSING | change)) == when(replace(EVEN, **MISSING))


def test_rules_for_complete_classes_are_not_for_missing_ones() -> None:
    assert not any("no class is missing" in one for one in when(replace(EVEN, within=9, **MISSING)))
