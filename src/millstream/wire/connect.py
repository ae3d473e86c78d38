"""CONNECT: what a client asks for."""

from typing import Any

import msgspec


class MalformedConnect(ValueError):
    """The options are not a JSON object of the expected types."""


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of CONNECT; what is absent keeps the default that holds before CONNECT."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    tls_required: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    jwt: str = ""
    account: str = ""
    new_account: bool = False

    def __repr__(self) -> str:
        """Name the client; secrets stay out of logs."""
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, user={self.user!r})"


def parse_connect(options: bytes, before: ConnectOptions) -> ConnectOptions:
    """Read CONNECT's argument: what it leaves out, or says null to, stays as ``before``.

    The case of its keys does not count, as in the reference.
    """
    try:
        given: Any = msgspec.json.decode(options.decode("utf-8", "replace"))
        if given is None:
            return before
        if not isinstance(given, dict):
            raise MalformedConnect("CONNECT takes a JSON object")
        present = {key.lower(): value for key, value in given.items() if value is not None}
        return msgspec.convert({**msgspec.to_builtins(before), **present}, ConnectOptions)
    except msgspec.MsgspecError as error:
        raise MalformedConnect(str(error)) from error
