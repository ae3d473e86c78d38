"""How Sphinx builds the manual: `make docs`."""

import sys
from pathlib import Path

from millstream import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "millstream"
author = "the millstream authors"
copyright = "the millstream authors"
release = __version__
extensions = ["myst_parser", "pictures"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = f"millstream {__version__}"
html_static_path = ["static"]
exclude_patterns = ["build", "extensions", "static"]
