"""Why a consumer stands where it does, from what CONSUMER.INFO shows."""

import pytest

from millstream.client.jetstream.consumer_state import ConsumerState, ConsumerTerms

PULL = ConsumerTerms(ack_policy="explicit", max_ack_pending=10)
PUSH = ConsumerTerms(deliver_subject="to.me", ack_policy="explicit", max_ack_pending=10)
PAUSED = ConsumerTerms(ack_policy="explicit", pause_until="2030-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ConsumerState(PULL), "caught up; 0 pending, 0 in flight"),
        (ConsumerState(PULL, num_ack_pending=10), "caught up; 0 pending, 10 in flight"),
        (
            ConsumerState(PAUSED, 1, 0, 5, paused=True, pause_remaining=90_500_000_000),
            "paused until 2030-01-01T00:00:00Z (90 s more); 5 pending, 1 in flight",
        ),
        (
            ConsumerState(PULL, 10, 3, 5),
            "waiting for acks (max_ack_pending of 10 reached); 5 pending, 10 in flight",
        ),
        (
            ConsumerState(PULL, 9, 0, 5),
            "no waiting pull requests (nobody fetches); 5 pending, 9 in flight",
        ),
        (ConsumerState(PULL, 9, 1, 5), "behind by 5, delivering; 5 pending, 9 in flight"),
        (
            ConsumerState(PUSH, 0, 0, 5),
            "no interest on the deliver subject to.me; 5 pending, 0 in flight",
        ),
        (
            ConsumerState(PUSH, 0, 0, 5, push_bound=True),
            "behind by 5, delivering; 5 pending, 0 in flight",
        ),
        (
            ConsumerState(ConsumerTerms("to.me", "none", 10), 10, 0, 5, push_bound=True),
            "behind by 5, delivering; 5 pending, 10 in flight",
        ),
    ],
)
def test_the_cause_comes_first(state: ConsumerState, told: str) -> None:
    assert state.why().text() == told
