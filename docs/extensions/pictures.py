"""Two Sphinx directives that draw a page's own text as SVG: ``diagram`` and ``bars``.

A diagram lists boxes by column and row, and arrows between them::

    client @ 0 0 : a client / NATS or HTTP
    hub    @ 1 0 : hub
    client -> hub : PUB
    hub --> client : ack

``/`` breaks a line, ``-->`` draws a dashed arrow, and ``store @ 2 0 2`` makes a box two columns
wide. ``bars`` takes the names of cases and draws their rows of the benchmark page, so that a
picture can never show another figure than the table does. The colours are the theme's own
variables: light and dark both fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx

ACROSS, DOWN = 190, 104  # from one box to the next
WIDE, HIGH = 140, 58
MARGIN = 12
LETTER = 6.9  # the width of a letter of 13 px, on the safe side
LINE = 17
BOX = re.compile(r"^(\w+)\s*@\s*(\d+)\s+(\d+)(?:\s+(\d+))?\s*:\s*(.+)$")
ARROW = re.compile(r"^(\w+)\s*(-->|->)\s*(\w+)(?:\s*:\s*(.+))?$")
BAR = 18
NAMES = 310  # what the names of cases take of a chart
LENGTH = 360


class BadPictureError(ValueError):
    """The text of a picture cannot be drawn as it stands."""


@dataclass(frozen=True)
class Box:
    """A box of a diagram, and where it stands."""

    column: int
    row: int
    columns: int
    lines: list[str]

    @property
    def left(self) -> int:
        """Its left border."""
        return MARGIN + self.column * ACROSS

    @property
    def top(self) -> int:
        """Its upper border."""
        return MARGIN + self.row * DOWN

    @property
    def width(self) -> int:
        """How wide it is, over all its columns."""
        return WIDE + (self.columns - 1) * ACROSS

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle."""
        return self.left + self.width / 2, self.top + HIGH / 2


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes, by their names."""

    source: str
    target: str
    is_dashed: bool
    label: str


def read_diagram(text: Iterable[str]) -> tuple[dict[str, Box], list[Arrow]]:
    """Read boxes and arrows; a line that is neither is a mistake."""
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for line in filter(None, map(str.strip, text)):
        if found := BOX.match(line):
            name, column, row, columns, label = found.groups()
            lines = [part.strip() for part in label.split(" / ")]
            boxes[name] = Box(int(column), int(row), int(columns or 1), lines)
        elif found := ARROW.match(line):
            source, kind, target, label = found.groups()
            arrows.append(Arrow(source, target, kind == "-->", label or ""))
        else:
            raise BadPictureError(f"neither a box nor an arrow: {line}")
    for arrow in arrows:
        for name in (arrow.source, arrow.target):
            if name not in boxes:
                raise BadPictureError(f"an arrow names {name}, which is no box")
    for name, box in boxes.items():
        longest = max(map(len, box.lines))
        if longest * LETTER > box.width - 10:
            raise BadPictureError(f"the text of {name} is wider than its box")
    return boxes, arrows


def draw_diagram(text: Iterable[str], title: str) -> str:
    """Draw a diagram as SVG."""
    boxes, arrows = read_diagram(text)
    wide = max(box.left + box.width for box in boxes.values()) + MARGIN
    high = max(box.top + HIGH for box in boxes.values()) + MARGIN
    parts = [_arrow(boxes, arrow) for arrow in arrows]
    parts += [_box(box) for box in boxes.values()]
    parts += [_arrow_label(boxes, arrow) for arrow in arrows if arrow.label]
    return _svg(wide, high, title, [_HEAD, *parts])


_HEAD = (
    '<defs><marker id="ms-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse">'
    '<path d="M0 0L10 5L0 10z" class="ms-head"/></marker></defs>'
)


def _svg(wide: float, high: float, title: str, parts: Iterable[str]) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="ms-picture" role="img" '
        f'viewBox="0 0 {wide:g} {high:g}" '
        f'style="max-width:{wide:g}px" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        + "".join(parts)
        + "</svg>"
    )


def _box(box: Box) -> str:
    x, y = box.centre
    first = y - (len(box.lines) - 1) * LINE / 2
    lines = "".join(
        f'<text x="{x:g}" y="{first + number * LINE:g}" '
        f'class="{"ms-more" if number else "ms-name"}">{escape(line)}</text>'
        for number, line in enumerate(box.lines)
    )
    return (
        f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{HIGH}" '
        'rx="8" class="ms-box"/>' + lines
    )


def _arrow(boxes: dict[str, Box], arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = _ends(boxes[arrow.source], boxes[arrow.target])
    dashed = ' stroke-dasharray="5 4"' if arrow.is_dashed else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="ms-arrow"{dashed} '
        'marker-end="url(#ms-head)"/>'
    )


def _arrow_label(boxes: dict[str, Box], arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = _ends(boxes[arrow.source], boxes[arrow.target])
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    y -= 8 if y1 == y2 else 0
    return f'<text x="{x:g}" y="{y:g}" class="ms-label">{escape(arrow.label)}</text>'


def _ends(source: Box, target: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow leaves one box and reaches the other: at their borders, upright if it can."""
    (x1, y1), (x2, y2) = source.centre, target.centre
    if source.row == target.row:
        return ((source.left + source.width, y1), (target.left, y2)) if x1 < x2 else (
            (source.left, y1), (target.left + target.width, y2)
        )  # fmt: skip
    low = max(source.left, target.left) + 20
    high = min(source.left + source.width, target.left + target.width) - 20
    if low <= high:  # one stands above the other: an upright arrow
        x1 = x2 = min(max(x1 if source.columns <= target.columns else x2, low), high)
    down = y1 < y2
    return (x1, source.top + (HIGH if down else 0)), (x2, target.top + (0 if down else HIGH))


def table_rates(page: str) -> dict[str, tuple[float, float]]:
    """Read the rates of both servers by case from the tables of the benchmark page."""
    rates: dict[str, tuple[float, float]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if (
            line.startswith("|")
            and len(cells) > 2
            and (found := re.match(r"^([\d,]+) / ([\d,]+)$", cells[1]))
        ):
            ours, theirs = (float(number.replace(",", "")) for number in found.groups())
            rates.setdefault(cells[0], (ours, theirs))
    return rates


def draw_bars(cases: Iterable[str], page: str, title: str) -> str:
    """Draw how many times nats-server's rate millstream reaches, a bar for each case."""
    rates = table_rates(page)
    rows = []
    for case in filter(None, map(str.strip, cases)):
        if case not in rates:
            raise BadPictureError(f"the benchmark page has no case named {case}")
        ours, theirs = rates[case]
        rows.append((case, ours, theirs, ours / theirs))
    scale = LENGTH / max(row[3] for row in rows)
    parts = []
    for number, (case, ours, theirs, ratio) in enumerate(rows):
        y = MARGIN + number * (2 * BAR + 16)
        parts.append(
            f'<text x="{NAMES - 10}" y="{y + BAR}" class="ms-case">{escape(case)}</text>'
            + _bar(y, ratio * scale, "ms-ours", ours)
            + _bar(y + BAR + 2, scale, "ms-theirs", theirs)
        )
    high = MARGIN + len(rows) * (2 * BAR + 16)
    return _svg(NAMES + LENGTH + 100, high, title, parts)


def _bar(top: float, length: float, kind: str, figure: float) -> str:
    return (
        f'<rect x="{NAMES}" y="{top}" width="{length:.0f}" height="{BAR}" rx="3" class="{kind}"/>'
        f'<text x="{NAMES + length + 6:.0f}" y="{top + 14}" class="ms-figure">{figure:,.0f}</text>'
    )


class Diagram(SphinxDirective):
    """``diagram``: boxes and arrows; the argument is what the picture shows."""

    has_content: ClassVar[bool] = True
    required_arguments: ClassVar[int] = 1
    final_argument_whitespace: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        """Draw it as a figure with a caption."""
        try:
            picture = draw_diagram(self.content, self.arguments[0])
        except BadPictureError as error:
            raise self.error(f"diagram: {error}") from error
        return _figure(picture, self.arguments[0])


class Bars(SphinxDirective):
    """``bars``: rates of both servers; each line of the content is a case of ``:page:``."""

    has_content: ClassVar[bool] = True
    required_arguments: ClassVar[int] = 1
    final_argument_whitespace: ClassVar[bool] = True
    option_spec: ClassVar = {"page": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Draw it as a figure with a caption."""
        page = Path(self.env.srcdir) / self.options["page"]
        self.env.note_dependency(str(page))
        try:
            picture = draw_bars(self.content, page.read_text(), self.arguments[0])
        except BadPictureError as error:
            raise self.error(f"bars: {error}") from error
        return _figure(picture, self.arguments[0])


def _figure(picture: str, caption: str) -> list[nodes.Node]:
    words = f"<figcaption>{escape(caption)}</figcaption>"
    html = f'<figure class="ms-figure-box">{picture}{words}</figure>'
    return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives and their style."""
    app.add_directive("diagram", Diagram)
    app.add_directive("bars", Bars)
    app.add_css_file("pictures.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
