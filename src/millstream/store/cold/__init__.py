"""Cold history: sealed segments at a slower place, with Parquet twins and a manifest.

Comes in: sealed segments to move, pieces that readers miss. Goes out: pieces, or ``NotHere`` while
one is being fetched. ``tier.py`` moves, ``scrubs.py`` checks, ``fetches.py`` brings back, and
``manifests.py`` knows what is there. Imports ``store.log`` and what is below it.
"""
