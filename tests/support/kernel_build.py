"""Whether the compiled kernel is the one in the sources."""

import sys
from pathlib import Path

KERNEL = Path(__file__).parents[2] / "src" / "millstream" / "kernel"


def stale_modules(kernel: Path = KERNEL) -> list[str]:
    """Return the kernel modules whose source is newer than what was compiled from it."""
    return [source.stem for source in sorted(kernel.glob("*.pyx")) if _is_stale(source)]


def stale_and_imported() -> list[str]:
    """Return those among them that this process has loaded, so that its tests are void."""
    return [name for name in stale_modules() if f"millstream.kernel.{name}" in sys.modules]


def _is_stale(source: Path) -> bool:
    built = list(source.parent.glob(f"{source.stem}.*.so"))
    written = max(p.stat().st_mtime for p in (source, source.with_suffix(".pxd")) if p.exists())
    return not built or max(so.stat().st_mtime for so in built) < written
