"""What a client may have others send in its name: answers to its messages, and schedules.

Judged like what it sends itself: whoever speaks for a client speaks with its rights.
"""

from typing import TYPE_CHECKING

from millstream.kernel._hub import ALLOWED, ALLOWED_ONCE, DENIED
from millstream.wire import errors

if TYPE_CHECKING:
    from millstream.nats.session import Session


def may_reply(session: "Session", reply: bytes) -> int:
    """Judge where answers are to go, and say so where that is not allowed."""
    if not session.rights.may_be_sent_to(reply):
        what = f"Publish Violation - Reply {errors.quoted(reply)}"
        session.complain(what, errors.reply_violation(reply))
        return DENIED
    return ALLOWED if session.rights.settles_stem(reply) else ALLOWED_ONCE


def may_schedule(session: "Session", headers: bytes) -> bool:
    """Judge what a schedule would publish, and say so where that is not allowed."""
    wrong = session.publishing.wrong_schedule(headers)
    if wrong:
        what = f"Publish Violation - Schedule {errors.quoted(wrong)}"
        session.complain(what, errors.publish_violation(wrong))
    return not wrong
