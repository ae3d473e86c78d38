import pytest

from millstream.consumers import work_queue
from millstream.consumers.config import ConsumerConfig, ConsumerRefused
from millstream.streams.config.config import StreamConfig

QUEUE = StreamConfig(name="S", subjects=("s.>",), retention="workqueue")


def make(**config: object) -> ConsumerConfig:
    return ConsumerConfig.from_request({"ack_policy": "explicit", **config}, QUEUE)


def check(mine: ConsumerConfig, *others: ConsumerConfig) -> None:
    work_queue.check_new(mine, others)
    for other in others:
        work_queue.check_share(mine, other)


def refusal(mine: ConsumerConfig, *others: ConsumerConfig) -> int:
    with pytest.raises(ConsumerRefused) as refused:
        check(mine, *others)
    return int(refused.value.err_code)


def test_a_work_queue_needs_explicit_acks_from_the_start():
    with pytest.raises(ConsumerRefused) as refused:
        make(ack_policy="none")
    assert refused.value.err_code == 10084
    assert refusal(make(ack_policy="all")) == 10098
    assert refusal(make(ack_policy="none", deliver_subject="d")) == 10098
    assert refusal(make(deliver_policy="new")) == 10101


def test_consumers_of_a_work_queue_share_nothing():
    one, two, everything = make(filter_subject="s.1"), make(filter_subject="s.2"), make()
    check(one)
    check(one, two)
    check(everything)
    assert refusal(everything, one) == 10099
    assert refusal(one, everything) == 10100
    assert refusal(make(filter_subjects=["s.3", "s.*.x"]), one, make(filter_subject="s.>")) == 10100


def test_a_mirror_may_read_a_work_queue_beside_its_consumers():
    mirror = make(ack_policy="none", deliver_subject="d", direct=True)
    work_queue.check_new(mirror, [make()])
    work_queue.check_new(make(), [mirror])
    work_queue.check_share(make(), mirror)
