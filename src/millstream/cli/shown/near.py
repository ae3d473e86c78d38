"""The name that somebody probably meant."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the name that is close enough to be meant, None where there is none."""
    from difflib import get_close_matches  # only a mistake needs it

    names = list(known)
    folded = {name.lower(): name for name in names}
    found = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def hint(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names what was probably meant, or nothing."""
    near = nearest(word, known)
    return "" if near is None or near == word else f"; did you mean {near!r}?"
