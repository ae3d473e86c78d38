"""ConsumerLetters: keeps what consumers give up, beside what queues do."""

from collections.abc import Callable

from millstream.consumers.letters.letter_box import Letter
from millstream.errors import MillstreamError
from millstream.queues.dead_letters import DeadLetters
from millstream.queues.queue_work import QueueWork
from millstream.streams.stream import Stream


class ConsumerLetters:
    """Stores letters by work that goes on to its end; the consumer hears how it ended."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        self.work = QueueWork("dead letters of consumers")

    def keep(
        self, origin: Stream, to: str, letter: Letter, done: Callable[[Exception | None], None]
    ) -> None:
        """Store a letter; ``done`` is called once it is as safe as its stream promises."""
        self.work.start(self._keep(origin, to, letter, done))

    async def _keep(
        self, origin: Stream, to: str, letter: Letter, done: Callable[[Exception | None], None]
    ) -> None:
        try:
            await self._dead_letters.bury_for(origin, to, letter)
        except MillstreamError as error:
            done(error)
        else:
            done(None)
