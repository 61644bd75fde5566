"""The page of `cheetah watch`: what it costs a browser with 500 machines, and how it is read: by keyboard, in light and dark, on a
telephone and on paper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import watched
from browser import Browser
from conftest import ROOT
from watched import Crowd, Watch

MACHINES = 500
ROWS = "[...document.querySelectorAll('#machines tr')]"
ALL_SHOWN = f"document.querySelectorAll('#machines tr').length === {MACHINES}"
# Each machine has answered twice, so that its rate is known, too.
ALL_KNOWN = f"{ALL_SHOWN} && {ROWS}.every(row => row.cells[5].textContent === '0 B')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    made = Crowd(MACHINES)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def live(binary: str, crowd: Crowd, browser: Browser) -> Iterator[Browser]:
    """The page of 500 machines, each of which was asked twice."""
    started = Watch(binary, "--nodes", ",".join(crowd.names))
    try:
        browser.open(started.url)
        browser.until(ALL_KNOWN)
        yield browser
    finally:
        started.close()


@pytest.fixture
def still(binary: str, browser: Browser) -> Iterator[Browser]:
    """The page with no picture but those that a test draws: the machine that it watches is asked once an hour."""
    started = Watch(binary, "--nodes", "127.0.0.1:1", "--every", "3600")
    try:
        browser.open(started.url)
        browser.until("document.documentElement.dataset.pictures")
        yield browser
    finally:
        started.close()


def draw(browser: Browser, picture: dict[str, Any]) -> None:
    """Draws a picture as if it had come from the command."""
    browser.value(f"show({json.dumps(picture)})")


def test_the_picture_of_these_tests_is_one_that_the_command_may_send() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs/reference/json/watch.json").read_text())
    jsonschema.validate(watched.picture(), schema)


def test_of_500_machines_the_page_shows_each_and_finds_one_by_keyboard(live: Browser) -> None:
    # What a machine calls itself is text.
    assert "<img src=x" in live.value(f"{ROWS}.map(r => r.innerText).find(t => t.includes('onerror'))")
    assert live.value("document.title") != "run"
    assert live.value("document.querySelectorAll('#machines img').length") == 0
    sentence = live.value("document.getElementById('sentence').textContent")
    assert re.search(r"pc-007( \(127.1.0.8:\d+\))? has memory that is NOT LOCKED", sentence)

    shown = "document.querySelectorAll('#machines tr:not(.hidden)').length"
    live.press("/", "Slash", 191)
    assert live.value("document.activeElement.id") == "find"
    live.call("Input.insertText", text="pc-499")
    assert live.value(shown) == 1
    assert live.value("document.getElementById('count').textContent") == f"1 of {MACHINES} shown"
    live.press("Escape", "Escape", 27)
    assert live.value(shown) == MACHINES
    # The next thing that the keyboard reaches.
    live.press("Tab", "Tab", 9)
    assert live.value("document.activeElement.id") == "only"
    live.press(" ", "Space", 32)
    assert live.value(shown) == 1


# Collects what the page changes from now on: the machines whose rows are changed, and the ids of other elements.
OBSERVE = """(() => {
  window.touched = new Set();
  const note = (node) => {
    const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
    const row = element && element.closest("#machines tr");
    if (row) touched.add(row.cells[0].title);
    else if (element && element.closest("main")) touched.add(element.id || element.className || element.tagName);
  };
  new MutationObserver((records) => {
    for (const record of records) [record.target, ...record.addedNodes, ...record.removedNodes].forEach(note);
  }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
})()"""


def touched(browser: Browser) -> set[str]:
    """What was changed since this was asked for the last time."""
    found = browser.value("(() => { const all = [...touched]; touched.clear(); return all; })()")
    return set(found)


def next_pictures(browser: Browser) -> None:
    """Waits for some further pictures."""
    drawn = "Number(document.documentElement.dataset.pictures)"
    browser.until(f"{drawn} > {browser.value(drawn) + 2}")


def test_a_picture_of_500_machines_changes_only_what_is_another_than_before(live: Browser, crowd: Crowd) -> None:
    live.value(OBSERVE)
    next_pictures(live)
    assert touched(live) == set()

    first, later = (f"127.1.{index // 250}.{index % 250 + 1}:" for index in (17, 250))
    crowd.say(17, used_bytes=5 << 30)
    live.until(f"{ROWS}.find(r => r.cells[0].title.startsWith('{first}')).cells[3].textContent === '5 GiB'")
    assert {name.partition(":")[0] + ":" for name in touched(live)} == {first}
    crowd.say(17)
    live.until(f"{ROWS}.find(r => r.cells[0].title.startsWith('{first}')).cells[3].textContent !== '5 GiB'")
    touched(live)

    # It moves to the top, and the rows that it passes stay.
    crowd.stop(250)
    live.until("document.querySelector('#machines tr').dataset.state === 'lost'")
    assert live.value("document.querySelector('#machines tr').cells[0].title").startswith(later)
    assert f"1 of {MACHINES} machines runs no node any more" in live.value(
        "document.getElementById('sentence').textContent"
    )
    assert {re.sub(r":\d+$", ":", name) for name in touched(live)} == {later, "machines"}
    crowd.start_again(250)
    live.until(f"{ROWS}.every(row => row.dataset.state === 'ok')")
    assert {re.sub(r":\d+$", ":", name) for name in touched(live)} <= {later, "machines"}


def work(browser: Browser, script: str) -> float:
    """The seconds of processor time that the page's thread works on a script, with the styles and the layout that follow from it."""

    def worked() -> float:
        found = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    before = worked()
    browser.value(script)
    return worked() - before


# Draws pictures, in each of which one machine and one node of the drive have other figures than before.
UPDATES = """(() => {
  for (let number = 0; number < 20; number += 1) {
    kept.machines[300].lends.used_bytes = number * 2 ** 30;
    kept.drives[0].status.nodes[300].used_bytes = number * 2 ** 20;
    kept.drives[0].status.covered.read_bytes += 2 ** 30;
    show(kept);
    document.body.getBoundingClientRect();
  }
})()"""
# Draws the same pictures on an empty page each.
ANEW = """(() => {
  for (let number = 0; number < 20; number += 1) {
    rows.clear(); boxes.clear();
    for (const id of ["machines", "drives"]) document.getElementById(id).replaceChildren();
    show(kept);
    document.body.getBoundingClientRect();
  }
})()"""


# What works this long without a pause is felt when a page is scrolled: browsers call it a long task. An update takes some 6 ms.
LONG_S = 0.05


def test_an_update_of_500_machines_and_nodes_takes_a_part_of_the_work_of_drawing_them(still: Browser) -> None:
    # Time of the processor, and beside other work of the same kind: it does not matter what else this machine does.
    still.call("Performance.enable", timeDomain="threadTicks")
    still.value(f"window.kept = {json.dumps(watched.picture(MACHINES, MACHINES))}; show(kept); 0")
    assert still.value(ALL_SHOWN)
    still.value(OBSERVE)
    updates, anew = work(still, UPDATES), work(still, ANEW)
    print(f"20 updates: {updates * 1000:.0f} ms, 20 times anew: {anew * 1000:.0f} ms")
    assert 0 < updates < anew / 2 and updates / 20 < LONG_S
    touched(still)
    still.value("kept.drives[0].status.nodes[300].used_bytes += 1; show(kept)")
    assert touched(still) == set(), "what is not shown is not drawn"


def test_what_the_picture_says_of_drives_jobs_links_and_custody_is_on_the_page(still: Browser) -> None:
    draw(still, watched.picture())

    def says(part: str) -> str:
        return str(still.value(f"document.getElementById('{part}').innerText"))

    for words in (
        "read 40 GiB",
        "unread 8 GiB",
        "unreadable 4 KiB in 1 range",
        "DEGRADED: survives no further loss, and 1 loss when repaired",
        "written by ann@examiner-of-the-laboratory, process 4711",
        "wiped at laboratory-999",
    ):
        assert words in says("drives"), words
    for words in (
        "case42 is being filled: 40 GiB of 48 GiB, 96 MiB/s, 75 s left, 1 bad range, 4 KiB",
        "case42 is being loaded: 30 GiB of 48 GiB, 96 MiB/s, 75 s left, no bad range",
        "case42 on laboratory-002 is being resynchronized: 20 GiB of 48 GiB",
        "no process does it: it stands still",
        "case42 on laboratory-001 is being moved to laboratory-009: 9 GiB of 48 GiB",
    ):
        assert words in says("jobs"), words
    assert "laboratory-001: 96 MiB/s of 118 MiB/s, measured 2026-11-28T07:40:00Z by trains" in says("links")
    meter = "document.querySelector('#links meter')"
    assert still.value(f"[{meter}.value, {meter}.max]") == [96 << 20, 118 << 20]
    assert "1 · 2026-11-28T08:01:00Z · ann · retry: sector 4711" in says("custody")
    assert "line 3: altered" in says("custody")


# What the rectangles of a drive's picture say, a row for each node.
MAPS = """[...document.querySelectorAll("#drives svg.map")].map((map) => [map.classList.contains("gone"),
    ...[...map.children].map((part) => [part.getAttribute("class"), part.getAttribute("x"), part.getAttribute("width")])])"""


def test_the_picture_of_a_drive_has_a_row_for_each_node_and_one_bad_slice_is_seen(still: Browser) -> None:
    draw(still, watched.picture())
    lost, partly, verified = still.value(MAPS)
    slice_percent = 100 / 64
    assert lost == [True, ["l", "0%", "100%"]] and verified == [False, ["v", "0%", "100%"]]
    assert [part[0] for part in partly[1:]] == ["r", "z", "r", "x", "r", "u"]
    [unreadable] = [part for part in partly[1:] if part[0] == "x"]
    assert unreadable[1:] == [f"{3 * slice_percent}%", f"{slice_percent}%"]


def test_a_page_between_two_pictures_is_not_called_old_and_one_without_a_connection_is(still: Browser) -> None:
    hidden = "document.getElementById('stale').hidden"
    assert still.value(f"last = Date.now() - 600000; lookForNews(); {hidden}"), "pictures come once an hour"
    assert not still.value(f"last = Date.now() - 7200000; lookForNews(); {hidden}")
    still.value("last = Date.now(); stale(''); 0")
    assert not still.value(f"cut = Date.now() - 5000; lookForNews(); {hidden}")


def test_two_members_that_claim_one_address_have_a_row_each(still: Browser) -> None:
    picture = watched.picture()
    picture["machines"][2]["address"] = picture["machines"][1]["address"]
    for _ in range(2):
        draw(still, picture)
        assert still.value(f"{ROWS}.map(row => row.cells[0].textContent)") == [
            one["name"] for one in picture["machines"]
        ]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, `rgb(1, 2, 3)` each, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


# The colours of each text that is shown, and of the ground that it stands on.
INKS = """[...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length && !e.closest("svg")
    && [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim())).map((e) => {
  let ground = e;
  while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
  return [e.textContent.slice(0, 40), getComputedStyle(e).color, ground ? getComputedStyle(ground).backgroundColor : "rgb(255, 255, 255)"];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_text_of_the_page_can_be_told_from_its_ground_in_light_and_dark(still: Browser, scheme: str) -> None:
    still.scheme(scheme)
    draw(still, watched.picture())
    paper = still.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    inks = still.value(INKS)
    assert len(inks) > 60 and {"bad", "attention", "good"} <= set(
        still.value("[...document.querySelectorAll('main [class]')].flatMap(e => [...e.classList])")
    )
    pale = [(text, ink, ground) for text, ink, ground in inks if contrast(ink, ground) < 4.5]
    assert pale == []


# Elements that reach beyond the right edge, but for those put off the page on purpose.
BEYOND = """[...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => e.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("width", [390, 320])
def test_nothing_is_cut_off_on_a_telephone(still: Browser, width: int) -> None:
    still.size(width, 844)
    draw(still, watched.picture())
    assert still.value("document.documentElement.scrollWidth") <= width
    assert still.value(BEYOND) == []
    # The headings of columns stand before the figures.
    label = "getComputedStyle(document.querySelector('#machines td.n'), '::before').content"
    assert still.value(label) not in ("none", "normal")


# The width of paper of the size A4 without its margins.
PAPER_PX = 718


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_all_machines_are_in_a_table_in_black_on_white_whatever_was_searched_for(
    still: Browser, scheme: str
) -> None:
    draw(still, watched.picture())
    still.value("document.getElementById('find').value = 'laboratory-001'; filter()")
    still.scheme(scheme, "print")
    still.size(PAPER_PX, 1000)
    assert still.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert still.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert still.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert still.value(f"{ROWS}.map(row => getComputedStyle(row).display)") == ["table-row"] * 4
    heading = still.value("document.querySelector('#machines-part th').getBoundingClientRect().left")
    assert 0 <= heading < PAPER_PX
    assert still.value("document.documentElement.scrollWidth") <= PAPER_PX
    assert still.value(BEYOND) == []


def test_the_keyboard_reaches_each_control_and_shows_where_it_is(still: Browser) -> None:
    draw(still, watched.picture())
    # Where a keyboard begins on a page.
    still.value("document.activeElement.blur()")
    found = []
    for _ in range(3):
        still.press("Tab", "Tab", 9)
        found.append(still.value("document.activeElement.id || document.activeElement.className"))
        outline = still.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", found
        assert still.value("document.activeElement.getBoundingClientRect().left") >= 0, found
    assert found == ["skip", "find", "only"]
    still.value("document.querySelector('.skip').focus()")
    still.press("Enter", "Enter", 13)
    still.until("document.activeElement.id === 'machines'")
    # The row that a reader is at stays the same when the next picture comes.
    still.value(f"{ROWS}[2].kept = true")
    changed = watched.picture()
    changed["machines"][2]["lends"]["used_bytes"] = 1
    draw(still, changed)
    assert still.value(f"{ROWS}[2].kept") and still.value(f"{ROWS}[2].cells[3].textContent") == "1 B"
