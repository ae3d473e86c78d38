"""Phrases: what the kernel's hub says to clients by itself, in the protocol's words."""

from millstream.kernel._phrases import Phrases

# What servers make up for service imports, gateways and acks: from that length on, no client may
# choose such a reply subject.
_RESERVED = ((b"_R_.", 4), (b"_GR_.", 6), (b"$JS.ACK.", 9))
RESERVED = tuple(prefix for prefix, _ in _RESERVED)

PHRASES = Phrases(
    bad_subject=b"-ERR 'Invalid Publish Subject'\r\n",
    reserved_reply=(b"-ERR 'Permissions Violation for Publish with Reply of \"", b"\"'\r\n"),
    reserved=_RESERVED,
    nobody=(b"NATS/1.0 503\r\nNats-Subject: ", b"\r\n\r\n"),
    no_headers=b"NATS/1.0\r\n\r\n",
    sequence=b"\r\nNats-Sequence: ",
    time=b"\r\nNats-Time-Stamp: ",
    traced=(b"Nats-Trace-Dest:", b"traceparent:"),
    scheduled=b"Nats-Schedule",
)
