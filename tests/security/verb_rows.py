"""What each operation of the protocol does for whom, written down by hand.

``fine``: carried out or ignored, the connection goes on. ``violation``: -ERR, the connection goes
on. ``ended``: -ERR, and the server hangs up.
"""

from typing import NamedTuple


class VerbRow(NamedTuple):
    """One operation, said by somebody who has not said who they are, or by a user."""

    verb: str  # as the kernel's scanner names it; of other servers, as they write it
    said: bytes
    stranger: str  # before CONNECT
    listener: str  # may subscribe to log.open, and publish nothing
    speaker: str  # may publish to log.open, and subscribe to inboxes alone


ROWS = [
    VerbRow("PING", b"PING", "ended", "fine", "fine"),
    VerbRow("PONG", b"PONG", "ended", "fine", "fine"),
    VerbRow("OK", b"+OK", "fine", "fine", "fine"),
    VerbRow("ERR", b"-ERR 'x'", "ended", "ended", "ended"),
    VerbRow("INFO", b"INFO {}", "ended", "fine", "fine"),
    # What a second CONNECT leaves out stays as it was: the same user, with the same rights.
    VerbRow("CONNECT", b"CONNECT {}", "ended", "fine", "fine"),
    VerbRow("CONNECT", b'CONNECT {"user":"all","pass":"q"}', "ended", "ended", "ended"),
    VerbRow(
        "CONNECT", b'CONNECT {"user":"all","pass":"p","account":"B"}', "ended", "ended", "ended"
    ),
    VerbRow("PUB", b"PUB log.open 0\r\n", "ended", "violation", "fine"),
    VerbRow("PUB", b"PUB log.secret 0\r\n", "ended", "violation", "violation"),
    VerbRow("PUB", b"PUB log.open elsewhere 0\r\n", "ended", "violation", "violation"),
    VerbRow("PUB", b"PUB log.open _INBOX.x 0\r\n", "ended", "violation", "fine"),
    VerbRow("HPUB", b"HPUB log.open 12 12\r\nNATS/1.0\r\n\r\n", "ended", "violation", "fine"),
    VerbRow(
        "HPUB", b"HPUB log.secret 12 12\r\nNATS/1.0\r\n\r\n", "ended", "violation", "violation"
    ),
    VerbRow("SUB", b"SUB log.open 1", "ended", "fine", "violation"),
    VerbRow("SUB", b"SUB log.open group 1", "ended", "fine", "violation"),
    VerbRow("SUB", b"SUB log.secret 1", "ended", "violation", "violation"),
    VerbRow("SUB", b"SUB log.> group 1", "ended", "violation", "violation"),
    VerbRow("SUB", b"SUB > 1", "ended", "violation", "violation"),
    VerbRow("UNSUB", b"UNSUB 1", "ended", "fine", "fine"),
    # What only servers say to each other means nothing from a client.
    *(
        VerbRow(said.split()[0].decode(), said, "ended", "ended", "ended")
        for said in (
            *(b"RS+ A log.secret", b"RS- A log.secret", b"RMSG A log.secret 0\r\n", b"A+ B"),
            *(b"LS+ log.secret", b"LS- log.secret", b"LMSG log.secret 0\r\n", b"A- B"),
            *(b"MSG log.secret 1 0\r\n", b"HMSG log.secret 1 12 12\r\nNATS/1.0\r\n\r\n"),
        )
    ),
]
