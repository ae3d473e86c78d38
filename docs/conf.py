"""How Sphinx builds the manual: `make docs`."""

from millstream import __version__

project = "millstream"
author = "the millstream authors"
copyright = "the millstream authors"
release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"millstream {__version__}"
exclude_patterns = ["build"]
