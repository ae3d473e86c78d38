"""Subjects for answers that nobody else can guess."""

import os


def new_inbox() -> str:
    """Return a subject to receive answers on."""
    return f"_INBOX.{os.urandom(11).hex()}"
