"""Log lines of ``serve``: text for people, or JSON for what reads logs by machine."""

import logging
from datetime import UTC, datetime

import msgspec

from millstream.log_codes import code_of

TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class TextLines(logging.Formatter):
    """``2026-01-31 13:05:09,123 ERROR millstream.store text [MS1001]``."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line with its code behind it."""
        code = code_of(str(record.msg))
        line = super().formatMessage(record)
        return line if code is None else f"{line} [{code.code}]"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and code and traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, whatever the message holds."""
        shown = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        code = code_of(str(record.msg))
        if code is not None:
            shown["code"] = code.code
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(shown).decode()


def lines_of(form: str) -> logging.Formatter:
    """Return what writes lines in a form: ``text`` or ``json``."""
    return JsonLines() if form == "json" else TextLines()
