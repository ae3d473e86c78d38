"""What can go wrong in a Spark read, in words that a Spark user can act on.

Spark shows these inside its own error classes, and pickles them between processes, so each is a
plain exception with one text.
"""


class SparkSourceError(Exception):
    """A read that cannot go on; the text says why and what to do."""


class OptionError(SparkSourceError):
    """An option, column or schema that the source does not accept."""


class DataLoss(SparkSourceError):
    """Records of the range are gone, and the reader asked to fail rather than to be told."""


class StreamReplaced(SparkSourceError):
    """The stream was deleted and created again under the same name."""


class NotText(SparkSourceError):
    """A record's payload is no text, and the read has no column for its bytes."""


class FilesUnreachable(SparkSourceError):
    """A segment's files cannot be used here: absent, unreadable, or not in this format."""
