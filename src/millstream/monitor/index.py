"""The page at /: where everything else is."""

from collections.abc import Sequence
from html import escape

from millstream import __version__

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>millstream</title>
<style>
body {{ font: 16px/1.6 system-ui, sans-serif; margin: 3rem }}
td {{ padding-right: 2rem }}
</style>
<h1>millstream {version}</h1>
<table>
{rows}
</table>
</html>
"""


def page(entries: Sequence[tuple[str, str]]) -> bytes:
    """Return the index of paths and what they show."""
    rows = "\n".join(
        f'<tr><td><a href="{escape(path)}">/{escape(path)}</a><td>{escape(summary)}'
        for path, summary in entries
    )
    return _PAGE.format(version=__version__, rows=rows).encode()
