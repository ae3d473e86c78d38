"""How hard the documents are to read: ``python scripts/readability.py [FILE…]``.

It looks at prose alone (no code, no tables) and prints, for each page, the mean number of words in
a sentence, the share of sentences above 30 words, and Flesch's reading ease (60 is plain English,
30 is a law). With ``--long`` it prints the long sentences instead. The bounds below are what
`make check` keeps.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG = 30  # words that make a sentence long
MOST_WORDS = 18.0  # in the mean sentence of a page
MOST_LONG = 0.12  # of a page's sentences
LEAST_EASE = 55.0


@dataclass(frozen=True)
class Measure:
    """The figures of one page."""

    sentences: int
    words: float
    long: float
    ease: float

    @property
    def is_plain(self) -> bool:
        """Whether the page keeps the bounds."""
        return self.words <= MOST_WORDS and self.long <= MOST_LONG and self.ease >= LEAST_EASE


def pages() -> list[Path]:
    """Every document that a user reads."""
    return [
        ROOT / "README.md",
        ROOT / "SECURITY.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("**/*.md")),
    ]


def prose(text: str) -> str:
    """Return the sentences of a page, without code, tables, headings and marks."""
    text = re.sub(r"^(```|:::).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = []
    for line in text.splitlines():
        if line.startswith(("    ", "|", "#", "![", "[", "<")):
            lines.append("")
        elif re.match(r"^\s*([-*]|\d+\.)\s", line):
            lines.extend(["", re.sub(r"^\s*([-*]|\d+\.)\s+", "", line)])
        else:
            lines.append(line)
    text = "\n".join(lines)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").replace("*", "")


def sentences(text: str) -> list[str]:
    """Cut prose into sentences of at least three words."""
    found = []
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        joined = " ".join(paragraph.split())
        found += [part.strip() for part in re.split(r"(?<=[.!?])\s+", joined)]
    return [part for part in found if len(words(part)) >= 3]


def words(sentence: str) -> list[str]:
    """Return the words of a sentence."""
    return re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)


def syllables(word: str) -> int:
    """Guess the syllables of a word by its groups of vowels."""
    groups = len(re.findall(r"[aeiouy]+", word.lower()))
    return max(1, groups - (word.lower().endswith("e") and not word.lower().endswith("le")))


def measure(text: str) -> Measure | None:
    """Measure a page; None when it has too little prose to say anything."""
    found = sentences(text)
    if len(found) < 5:
        return None
    counts = [len(words(sentence)) for sentence in found]
    every = [word for sentence in found for word in words(sentence)]
    mean = sum(counts) / len(counts)
    ease = 206.835 - 1.015 * mean - 84.6 * sum(map(syllables, every)) / len(every)
    return Measure(len(found), mean, sum(count > LONG for count in counts) / len(counts), ease)


def main() -> int:
    """Print the figures; 1 when a page is above a bound."""
    show_long = "--long" in sys.argv
    named = [Path(name) for name in sys.argv[1:] if not name.startswith("-")]
    failed = False
    for page in named or pages():
        figures = measure(page.read_text())
        if figures is None:
            continue
        if show_long:
            for sentence in sentences(page.read_text()):
                if len(words(sentence)) > LONG:
                    print(f"{page.name}: {sentence}")
            continue
        mark = "" if figures.is_plain else "  <- too hard"
        failed |= not figures.is_plain
        print(
            f"{figures.words:5.1f} words  {figures.long:6.1%} long  ease {figures.ease:3.0f}"
            f"  {page.resolve().relative_to(ROOT)}{mark}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
