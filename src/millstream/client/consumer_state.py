"""ConsumerState: a consumer as CONSUMER.INFO shows it, and why it stands where it does."""

import msgspec

INFO_SUBJECT = "$JS.API.CONSUMER.INFO."


class ConsumerTerms(msgspec.Struct, frozen=True):
    """What of a consumer's configuration decides whether it delivers."""

    deliver_subject: str = ""
    ack_policy: str = "none"
    max_ack_pending: int = 0
    pause_until: str = ""


class ConsumerState(msgspec.Struct, frozen=True):
    """A consumer at one moment."""

    config: ConsumerTerms
    num_ack_pending: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    push_bound: bool = False
    paused: bool = False
    pause_remaining: int = 0  # nanoseconds

    def why(self) -> str:
        """Return what it does or waits for, in one line; the cause comes first."""
        counts = f"{self.num_pending} pending, {self.num_ack_pending} in flight"
        return f"{self._cause()}; {counts}"

    def _cause(self) -> str:
        terms = self.config
        if self.paused:
            left = self.pause_remaining // 1_000_000_000
            return f"paused until {terms.pause_until or 'later'} ({left} s more)"
        if not self.num_pending:
            return "caught up"
        if 0 < terms.max_ack_pending <= self.num_ack_pending and terms.ack_policy != "none":
            return f"waiting for acks (max_ack_pending of {terms.max_ack_pending} reached)"
        if terms.deliver_subject:
            if not self.push_bound:
                return f"no interest on the deliver subject {terms.deliver_subject}"
        elif not self.num_waiting:
            return "no waiting pull requests (nobody fetches)"
        return f"behind by {self.num_pending}, delivering"


class Told(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct, frozen=True):
    """A CONSUMER.INFO answer: a consumer, or an error."""

    error: Told | None = None
