"""Pictures are drawn from their text, links lead somewhere, and hard prose is noticed."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.pages import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

import readability

pictures = pytest.importorskip("pictures", reason="the manual's packages are not installed")

MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), ROOT / "examples" / "README.md"]
DIAGRAM = re.compile(r"^```\{diagram\} (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def diagrams() -> list[tuple[str, str, str]]:
    return [
        (page.name, title, body)
        for page in MARKDOWN
        for title, body in DIAGRAM.findall(page.read_text())
    ]


def test_each_diagram_is_sound_svg_with_all_its_words() -> None:
    assert len(diagrams()) >= 6
    for _, title, body in diagrams():
        svg = ElementTree.fromstring(pictures.draw_diagram(body.splitlines(), title))
        shown = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
        boxes, arrows = pictures.read_diagram(body.splitlines())
        assert {line for box in boxes.values() for line in box.lines} <= shown
        assert {arrow.label for arrow in arrows if arrow.label} <= shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a @ 0 0 : box\na -> b", "which is no box"),
        ("a @ 0 0 : box\nnonsense", "neither a box nor an arrow"),
        ("a @ 0 0 : a text that is far too long for one box", "wider than its box"),
    ],
)
def test_a_diagram_that_cannot_be_drawn_says_why(text: str, message: str) -> None:
    with pytest.raises(pictures.BadPictureError, match=message):
        pictures.draw_diagram(text.splitlines(), "x")


def test_bars_show_the_figures_of_the_table() -> None:
    page = "| case | msg/s | ratio |\n|---|---|---|\n| pub | 1,000 / 250 | 4.00 |\n"
    svg = pictures.draw_bars(["pub"], page, "x")
    assert ">1,000<" in svg
    assert ">250<" in svg
    with pytest.raises(pictures.BadPictureError, match="no case named sub"):
        pictures.draw_bars(["sub"], page, "x")


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.name)
def test_each_link_to_a_file_leads_there(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_hard_prose_is_noticed() -> None:
    plain = "The server writes the record. It syncs the file. Then it answers.\n" * 5
    hard = (
        "Notwithstanding aforementioned considerations regarding asynchronous " * 6 + ".\n\n"
    ) * 5
    assert readability.measure(plain).is_plain
    assert not readability.measure(hard).is_plain
