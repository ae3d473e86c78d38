"""Deliver policies: where in its stream a consumer begins, and may begin anew."""

from millstream.consumers.config import ConsumerConfig, ConsumerRefused
from millstream.consumers.reading.cursor import Cursor
from millstream.streams.config.times import time_ns
from millstream.streams.stream import Stream


def place(cursor: Cursor, config: ConsumerConfig, stream: Stream) -> None:
    """Move a cursor to where the deliver policy says."""
    first, last = stream.contents.bounds()
    is_newest_only = stream.config.max_msgs_per_subject == 1  # and of each subject, anyway
    if config.deliver_policy == "last_per_subject" and not is_newest_only:
        cursor.start_at_last_of_each()
    elif config.deliver_policy == "last":
        cursor.start_at_last()
    elif config.deliver_policy == "new":
        cursor.start(last + 1, first)
    elif config.deliver_policy == "by_start_sequence":
        cursor.start(config.opt_start_seq, first)
    elif config.deliver_policy == "by_start_time":
        cursor.start(stream.log.seek_time(time_ns(config.opt_start_time)), first)
    else:
        cursor.start(first, first)


def check_reset(seq: int, config: ConsumerConfig, stream: Stream) -> None:
    """Refuse to deliver anew from a sequence that the deliver policy excludes."""
    if config.deliver_policy == "by_start_sequence":
        if seq < config.opt_start_seq:
            raise ConsumerRefused(10204, "invalid reset: below start seq")
    elif config.deliver_policy == "by_start_time":
        if seq < stream.log.seek_time(time_ns(config.opt_start_time)):
            raise ConsumerRefused(10204, "invalid reset: below start time")
    elif config.deliver_policy != "all":
        raise ConsumerRefused(10204, "invalid reset: not allowed")
