"""ColdOptions: where cold history goes, and what stays."""

from dataclasses import dataclass

from millstream.store.disk.objects import Objects


@dataclass(frozen=True, slots=True)
class ColdOptions:
    """Where cold history goes, and what stays: without a bound nothing moves."""

    place: str = ""
    hot_segments: int | None = None  # sealed ones of each log that stay
    hot_bytes: int | None = None  # of sealed segments of each log that stay
    cache_bytes: int = 64 << 20  # of pieces that were read
    patience: float = 10.0  # seconds until a reader is told that the place does not answer
    checkpoint_gap: float = 30.0  # between checkpoints that only a move waits for
    scrub_rate: int = 4 << 20  # bytes a second that are checked in the background, 0 for none
    scrub_interval: float = 24 * 3600.0  # seconds between two looks at the same segment
    twins: str = "plain"  # of which segments a Parquet twin is made: "none", "plain", "all"
    objects: Objects | None = None  # instead of what ``place`` names

    @property
    def moves(self) -> bool:
        """Say whether segments are moved at all."""
        return self.hot_segments is not None or self.hot_bytes is not None
