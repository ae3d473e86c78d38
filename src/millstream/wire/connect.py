"""CONNECT: what a client asks for."""

import msgspec

from millstream.wire.go_json import BOOL, INT, STRING, STRINGS, GoJsonError, Shape, unmarshal


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


_PERMISSION = Shape("SubjectPermission", {"allow": STRINGS, "deny": STRINGS}, pointer=True)
CONNECT = Shape(
    "ClientOpts",
    {
        "echo": BOOL,
        "verbose": BOOL,
        "pedantic": BOOL,
        "tls_required": BOOL,
        "nkey": STRING,
        "jwt": STRING,
        "sig": STRING,
        "auth_token": STRING,
        "user": STRING,
        "pass": STRING,
        "name": STRING,
        "lang": STRING,
        "version": STRING,
        "protocol": INT,
        "account": STRING,
        "new_account": BOOL,
        "headers": BOOL,
        "no_responders": BOOL,
        # What only servers say to each other must be of its type all the same.
        "import": _PERMISSION,
        "export": _PERMISSION,
        "remote_account": STRING,
        "proxy_sig": STRING,
    },
)


def parse_connect(options: bytes, before: ConnectOptions) -> ConnectOptions:
    """Read CONNECT's argument: what it leaves out, or says null to, stays as ``before``.

    The case of its keys does not count, as in the reference.
    """
    try:
        given = unmarshal(options, CONNECT)
    except GoJsonError as error:
        raise MalformedConnect(str(error)) from error
    return msgspec.convert({**msgspec.to_builtins(before), **given}, ConnectOptions)
