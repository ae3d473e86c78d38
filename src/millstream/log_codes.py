"""LogCode: a number for each log line that an operator must act on, what it means, what to do.

Lines find their code by how they begin, so that a line is written once, where it happens. Codes
stay: one that is no longer used is not given again. ``MS1`` is disk and log, ``MS2`` damage that
was found, ``MS3`` cold history, ``MS4`` configuration and access, ``MS5`` clients and requests,
``MS6`` fleets.
"""

from functools import lru_cache

import msgspec


class LogCode(msgspec.Struct, frozen=True):
    """One kind of line: how it begins, what it means and what an operator does about it."""

    code: str
    begins: str
    means: str
    do: str


_SPACE = "Make room on the disk and look at the kernel's log for errors of the device."
_RESTORE = "Run `millstream fsck`; restore the lost records from a backup and replace the disk."
_NOTHING_LOST = "Nothing is lost, it is tried again; make room if the disk is full."
_REPORT = "Report it with the traceback; the server goes on."

CODES: tuple[LogCode, ...] = (
    LogCode("MS1001", "shard is read-only", "A write or sync failed: the log takes no more.",
            "Mend the disk or make room, then start the server again."),
    LogCode("MS1002", "checkpoint failed", "A snapshot could not be written.", _SPACE),
    LogCode("MS1003", "no room for the next wal file", "The disk is full.", _SPACE),
    LogCode("MS1004", "records in memory only", "Records could not be written yet.", _SPACE),
    LogCode("MS1005", "segment not written", "A segment stays in the log for now.", _SPACE),
    LogCode("MS1006", "segment not sealed", "A segment could not be closed.", _SPACE),
    LogCode("MS1007", "segment not synced", "The disk did not confirm a segment.", _SPACE),
    LogCode("MS1008", "rewritten segment not in place", "Space was not freed.", _SPACE),
    LogCode("MS1009", "segment not rewritten", "Space was not freed.", _NOTHING_LOST),
    LogCode("MS1010", "records not erased", "A secure erase is not done yet.",
            "Do not promise that it is; make room, and look whether it is done later."),
    LogCode("MS1011", "first sequence not written", "A log's beginning was not noted.", _SPACE),
    LogCode("MS1012", "last sync failed", "The log could not be synced as the server stopped.",
            "Check the disk before the next start; the last moments may be lost."),
    LogCode("MS1013", "trim", "Records that limits drop are still there.", _NOTHING_LOST),
    LogCode("MS1014", "removal failed", "Records that should go are still there.", _NOTHING_LOST),
    LogCode("MS1015", "marks not", "The mark of what is synced is old.", _NOTHING_LOST),
    LogCode("MS1016", "durable mark not written", "The mark of what is synced is old.",
            _NOTHING_LOST),
    LogCode("MS1017", "consumer state not written", "After a crash acked messages come again.",
            _SPACE),
    LogCode("MS1018", "lease event not written", "After a crash leased jobs come again.", _SPACE),
    LogCode("MS1019", "file not removed", "A file that nobody needs is still there.",
            "Look at the directory's permissions; the next start removes it."),
    LogCode("MS1020", "staged records not removed", "Staged files are still there.",
            "Look at the directory's permissions."),
    LogCode("MS1021", "mirror could not note", "After a crash the mirror looks again.", _SPACE),
    LogCode("MS1022", "removal of an unfinished restore", "It comes back after a restart.", _SPACE),
    LogCode("MS1023", "head of a stream in memory", "After a restart its sequences begin lower.",
            _SPACE),
    LogCode("MS2017", "log is broken", "The log in the object store cannot be gone on with.",
            "Check the object store, then start the server again."),
    LogCode("MS2001", "damaged records", "The disk lost records of a segment.", _RESTORE),
    LogCode("MS2002", "damaged record", "The disk lost a record.", _RESTORE),
    LogCode("MS2003", "damaged segment header", "A segment cannot be read.", _RESTORE),
    LogCode("MS2004", "damaged segment", "A part of a segment cannot be read.", _RESTORE),
    LogCode("MS2005", "damaged block", "A compressed block cannot be read.", _RESTORE),
    LogCode("MS2006", "damaged wal header", "A file of the log cannot be read.", _RESTORE),
    LogCode("MS2007", "damaged wal entry", "A commit in the log cannot be read.", _RESTORE),
    LogCode("MS2008", "damaged wal", "A part of the log cannot be read.", _RESTORE),
    LogCode("MS2009", "segment file is missing", "Somebody or something removed it.", _RESTORE),
    LogCode("MS2010", "wal files are missing", "Somebody or something removed them.", _RESTORE),
    LogCode("MS2011", "wal lost its end", "Records that were promised are not there.", _RESTORE),
    LogCode("MS2012", "wal file was cut", "Nobody knows how much was behind the cut.", _RESTORE),
    LogCode("MS2013", "damaged snapshot", "An older snapshot was used; the log did the rest.",
            "Nothing is lost; look at the disk."),
    LogCode("MS2014", "damaged index", "It was made anew from the records.",
            "Nothing is lost; look at the disk."),
    LogCode("MS2015", "damaged list of erases", "It was made anew from the log.",
            "Nothing is lost; look at the disk."),
    LogCode("MS2016", "damaged marks header", "The server looks further back at this start.",
            "Nothing is lost; look at the disk."),
    LogCode("MS3001", "cold history not read", "The cold place does not answer.",
            "Check the place, its credentials and the network."),
    LogCode("MS3002", "segment not moved", "A segment stays hot for now.",
            "Check the cold place; the move is tried again."),
    LogCode("MS3003", "cold segment damaged", "A cold copy was damaged; see what was mended.",
            "When something is lost, restore it from a backup."),
    LogCode("MS3004", "cold manifest is damaged", "It was made anew.", "Look at the cold place."),
    LogCode("MS3005", "cold segment not scrubbed", "A check could not read a cold segment.",
            "Check the cold place."),
    LogCode("MS3006", "segment not scrubbed", "A check could not read a segment.",
            "Look at the disk."),
    LogCode("MS3007", "cold marker not removed", "An old marker is still there.",
            "Look at the directory's permissions."),
    LogCode("MS3008", "cold objects not removed", "Objects that nobody needs are still there.",
            "Check that the credentials may delete."),
    LogCode("MS3009", "no Parquet twins", "Cold segments have no Parquet copy.",
            "Install the extra that the line names, or turn the twins off."),
    LogCode("MS4001", "Failed to reload server configuration", "The old settings still count.",
            "Mend the file as the line says and reload again."),
    LogCode("MS4002", "Reload: '", "A setting needs a restart.", "Restart when it suits."),
    LogCode("MS4003", "Reload: there is no", "There was nothing to reload.",
            "Start the server with a configuration file."),
    LogCode("MS4004", "API keys not reread", "The old keys still count.",
            "Mend the key file as the line says."),
    LogCode("MS4005", "the encryption key is short", "Guessing it is easier than it should be.",
            "Use 32 random bytes and rotate the key."),
    LogCode("MS4006", "mapping left out", "A subject mapping does not act.",
            "Mend it in the configuration."),
    LogCode("MS4007", "import left out", "An import does not act.",
            "Mend it in the configuration, or the export that it needs."),
    LogCode("MS4008", "The JWT of", "A claim is not followed.", "Issue the JWT anew without it."),
    LogCode("MS4009", "account left out", "An account's JWT is not followed.",
            "Mend or remove the file that the line names."),
    LogCode("MS4010", "account %s: its JWT is refused", "The account's old claims still count.",
            "Issue the JWT anew as the line says."),
    LogCode("MS4011", "an account's JWT is refused", "The account's old claims still count.",
            "Issue the JWT anew as the line says."),
    LogCode("MS4012", "could not fetch", "The account server did not answer.",
            "Check its address and the network; clients of that account wait."),
    LogCode("MS4013", "auth callout on account", "Clients are refused meanwhile.",
            "Check the service that answers the callout."),
    LogCode("MS5001", "audit entry not written", "A change is not in the audit log.",
            "The line holds the entry: keep it. Make room, or mend the stream."),
    LogCode("MS5002", "cannot accept connections", "The system gives no more connections.",
            "Raise the limit of open files, or close clients."),
    LogCode("MS5003", "slow consumer closed", "A client did not take what was sent to it.",
            "Let it subscribe to less, add subscribers, or raise max_pending."),
    LogCode("MS5004", "request dropped", "Too many API requests were under way.",
            "Find the client that asks so much."),
    LogCode("MS5005", "dead letter copied but not removed", "A job is there twice.",
            "Workers may see it again; remove the copy when it does harm."),
    LogCode("MS5006", "job not moved to its dead letters", "A failing job stays in its queue.",
            "Mend the dead-letter topic that the line names."),
    LogCode("MS5007", "record too large for", "A copy was left out.",
            "Raise the limit of the target, or accept the hole."),
    LogCode("MS5008", "copies wait", "Routers wait for room in their target.",
            "Drain or enlarge the target."),
    LogCode("MS5009", "schedule could not publish", "A scheduled message is late.",
            "Mend the stream that should take it; it is tried again."),
    LogCode("MS5010", "%s: see the traceback", "A thread, task or repeated call ended or failed.",
            "Start the server again, and report it with the traceback."),
    LogCode("MS5011", "request failed", "A request met a fault of the server.", _REPORT),
    LogCode("MS5012", "work for a request failed", "A request met a fault of the server.", _REPORT),
    LogCode("MS5013", "a request of the system account failed", "A fault of the server.", _REPORT),
    LogCode("MS5014", "answer not finished", "An answer was cut by a fault of ours.", _REPORT),
    LogCode("MS5015", "socket failed", "A WebSocket met a fault of the server.", _REPORT),
    LogCode("MS5025", "dead letter not kept", "A record stays pending until its letter is stored.",
            "Mend the stream or topic that the line names; it is tried again."),
    LogCode("MS5024", "origin api=", "A mirror or source gets nothing from another server.",
            "Check the link, the domain and the rights that the line names; it asks again."),
    LogCode("MS5017", "Error trying to connect", "Another server cannot be reached.",
            "Check its address, the network and its certificates; it is tried again."),
    LogCode("MS5018", "%s: the other server says", "A link to another server was refused.",
            "Mend what the line says, on the side that it names."),
    LogCode("MS5019", "%s: it sent what no server sends", "A link was closed.",
            "Check that the other side is a server of a version that fits."),
    LogCode("MS5020", "%s: its credentials are not believed", "A leafnode was turned away.",
            "Give it credentials that this server knows."),
    LogCode("MS5021", "too many servers are connecting", "A server was turned away.",
            "Look for one that connects again and again."),
    LogCode("MS6001", "not the owner any more", "Another member owns the log, or may own it soon.",
            "Nothing is lost; look at the store and the network where it comes again and again."),
    LogCode("MS6002", "lease renewed too late", "The object store answered after the lease ended.",
            "Look at the store and the network: this member stands by until it takes over again."),
    LogCode("MS6003", "snapshot not in the store", "A snapshot did not reach the object store.",
            "Nothing is lost: the log has it. Look at the store; a take-over takes longer."),
    LogCode("MS6005", "object store does not answer plainly", "A fleet's store is away or refuses.",
            "Look at its URL, the credentials and the network; the member asks again and again."),
    LogCode("MS6004", "log is broken", "Something stands in the log that no member wrote.",
            "Stop all members, and restore the bucket to before somebody changed it."),
    LogCode("MS5016", "no priority for a request", "A request was ranked as usual.", _REPORT),
)  # fmt: skip


@lru_cache(maxsize=512)
def code_of(template: str) -> LogCode | None:
    """Return the code of a line by its template; the longest beginning that fits counts."""
    fits = [each for each in CODES if template.startswith(each.begins)]
    return max(fits, key=lambda each: len(each.begins), default=None)


def explain(code: str) -> LogCode | None:
    """Return what a code means, None for one that there is not."""
    return next((each for each in CODES if each.code == code.upper()), None)
