"""Log lines as nats-server writes them: standard error, syslog, or a file that can be reopened."""

import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from millstream.nats.transport.trace import TRACE
from millstream.server.options.options import LoggingOptions
from millstream.server.process.syslog import Syslog

_LABELS = {
    TRACE: "TRC",
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
}


class LogFormat(logging.Formatter):
    """``[pid] 2026/01/31 13:05:09.000123 [INF] text``."""

    def __init__(self, *, time: bool = True, utc: bool = False) -> None:
        super().__init__()
        self._time = time
        self._utc = utc
        self._pid = os.getpid()

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows on lines of its own."""
        label = _LABELS.get(record.levelno, record.levelname[:3])
        line = f"[{self._pid}] {self._stamp(record)}[{label}] {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def _stamp(self, record: logging.LogRecord) -> str:
        if not self._time:
            return ""
        at = datetime.fromtimestamp(record.created, UTC)
        return (at if self._utc else at.astimezone()).strftime("%Y/%m/%d %H:%M:%S.%f ")


class LogOutput(logging.Handler):
    """Writes lines, cuts the file at its size limit, and opens it anew when told to."""

    def __init__(self, options: LoggingOptions, tag: str = "nats-server") -> None:
        """``tag`` is the program's name in the system's log."""
        super().__init__()
        self._options = options
        self._stream: TextIO | None = None
        self._written = 0
        self._syslog: Syslog | None = None
        self._tag = tag
        self.change(options)

    def change(self, options: LoggingOptions) -> None:
        """Follow other options; a file that cannot be opened raises and changes nothing."""
        if options.file != self._options.file or (options.file and self._stream is None):
            self._open(options.file)
        self._connect(options)
        self._options = options
        self.setFormatter(LogFormat(time=options.time, utc=options.utc))

    def _connect(self, options: LoggingOptions) -> None:
        """Open or leave the system's log; a file goes before it."""
        before, wanted = _place(self._options), _place(options)
        if before == wanted and (self._syslog is not None) == (wanted is not None):
            return
        opened = Syslog(wanted, self._tag) if wanted is not None else None
        if self._syslog is not None:
            self._syslog.close()
        self._syslog = opened

    def reopen(self) -> None:
        """Open the file anew, after something else moved the old one away."""
        if self._options.file:
            self._open(self._options.file)

    def _open(self, file: str) -> None:
        opened = Path(file).open("a", encoding="utf-8", buffering=1) if file else None  # noqa: SIM115
        if self._stream is not None:
            self._stream.close()
        self._stream = opened
        self._written = opened.tell() if opened is not None else 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; whoever asked for traces alone did not ask for what is between."""
        if record.levelno == logging.DEBUG and not self._options.debug:
            return
        try:
            if self._syslog is not None:
                self._syslog.send(record.levelno, self._told(record), record.created)
                return
            line = self.format(record) + "\n"
            (self._stream or sys.stderr).write(line)
            self._written += len(line)
            if self._stream is not None and 0 < self._options.size_limit < self._written:
                self._rotate()
        except Exception:
            self.handleError(record)

    @property
    def lost_lines(self) -> int:
        """How many lines the system's log did not take."""
        return self._syslog.lost if self._syslog is not None else 0

    def _told(self, record: logging.LogRecord) -> str:
        """Return the text alone: the system's log has its own time, level and program."""
        text = record.getMessage()
        if record.exc_info and self.formatter is not None:
            text += "\n" + self.formatter.formatException(record.exc_info)
        return text

    def _rotate(self) -> None:
        """Put the full file aside under the time's name and forget the oldest ones."""
        path = Path(self._options.file)
        aside = path.with_name(f"{path.name}.{datetime.now():%Y.%m.%d.%H.%M.%S.%f}")
        path.rename(aside)
        self._open(self._options.file)
        keep = self._options.max_files
        if keep > 0:
            older = sorted(path.parent.glob(f"{path.name}.*"))
            for old in older[: len(older) - keep + 1]:
                old.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._syslog is not None:
            self._syslog.close()
        super().close()


def level(options: LoggingOptions) -> int:
    """Return the least level that is said."""
    if options.trace:
        return TRACE
    return logging.DEBUG if options.debug else logging.INFO


def _place(options: LoggingOptions) -> str | None:
    """Return the URL of a remote log, an empty one for this machine's; None = no syslog."""
    if options.file or not (options.syslog or options.remote_syslog):
        return None
    return options.remote_syslog
