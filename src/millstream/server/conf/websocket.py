"""The ``websocket`` block as it stands in a file."""

from millstream.server.conf.setting import Setting, Table, Values, read
from millstream.server.conf.tls import tls
from millstream.server.conf.users import simple_authorization
from millstream.server.options.options import WebsocketOptions


def websocket(setting: Setting) -> WebsocketOptions | None:
    """Read the block; without a port nothing listens."""
    values = read(setting.block(), _WEBSOCKET, setting.findings)
    port = values.pop("port", 0)
    if port == 0:
        return None
    if not values.get("host", ""):
        values.pop("host", None)
    return WebsocketOptions(port=max(port, 0), **values)


def _listen(setting: Setting) -> Values:
    host, port = setting.listen()
    return {"host": host, "port": port}


def _handshake_timeout(setting: Setting) -> float:
    if isinstance(setting.value, str):
        return setting.duration()
    return float(setting.integer())


_WEBSOCKET: Table = {
    "listen": ("", _listen),
    "port": ("port", Setting.integer),
    **dict.fromkeys(("host", "net"), ("host", Setting.text)),
    "advertise": ("advertise", Setting.text),
    "no_tls": ("no_tls", Setting.switch),
    "tls": ("tls", tls),
    "same_origin": ("same_origin", Setting.switch),
    **dict.fromkeys(
        (
            "allowed_origins",
            "allowed_origin",
            "allow_origins",
            "allow_origin",
            "origins",
            "origin",
        ),
        ("allowed_origins", Setting.texts),
    ),
    "handshake_timeout": ("handshake_timeout", _handshake_timeout),
    **dict.fromkeys(("compress", "compression"), ("compression", Setting.switch)),
    **dict.fromkeys(("authorization", "authentication"), ("authorization", simple_authorization)),
    "jwt_cookie": ("jwt_cookie", Setting.text),
    "user_cookie": ("user_cookie", Setting.text),
    "pass_cookie": ("pass_cookie", Setting.text),
    "token_cookie": ("token_cookie", Setting.text),
    "no_auth_user": ("no_auth_user", Setting.text),
    "headers": ("headers", Setting.text_pairs),
    "ping_interval": ("ping_interval", Setting.duration_or_seconds),
}
