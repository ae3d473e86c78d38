"""A ``tls`` block as it stands in a file, with the files that it names."""

import re

from millstream.links.terms import DialTls
from millstream.server.conf.durations import parse_duration
from millstream.server.conf.setting import Setting, Table, Values, read, unsupported
from millstream.server.options.options import CertificatePair, TlsOptions
from millstream.server.options.tls_files import BadTlsFile, check_authority, check_pair

FALLBACK_DELAY = 0.05
_VERSIONS = {"1.0": "1.0", "1.1": "1.1", "1.2": "1.2", "1.3": "1.3"}
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_CURVES = ("CurveP256", "CurveP384", "CurveP521", "X25519", "X25519MLKEM768")
_STRONG = re.compile(
    r"TLS_(AES_128_GCM_SHA256|AES_256_GCM_SHA384|CHACHA20_POLY1305_SHA256"
    r"|ECDHE_(RSA|ECDSA)_WITH_(AES_128_CBC_SHA|AES_256_CBC_SHA|AES_128_GCM_SHA256"
    r"|AES_256_GCM_SHA384|CHACHA20_POLY1305_SHA256))"
)
_WEAK = re.compile(
    r"TLS_(RSA_WITH_(RC4_128_SHA|3DES_EDE_CBC_SHA|AES_128_CBC_SHA|AES_256_CBC_SHA"
    r"|AES_128_CBC_SHA256|AES_128_GCM_SHA256|AES_256_GCM_SHA384)"
    r"|ECDHE_ECDSA_WITH_(RC4_128_SHA|AES_128_CBC_SHA256)"
    r"|ECDHE_RSA_WITH_(RC4_128_SHA|3DES_EDE_CBC_SHA|AES_128_CBC_SHA256))"
)


def tls(setting: Setting) -> TlsOptions:
    """Read the TLS block of a port for clients, and look at its files."""
    options, insecure = _read(setting)
    if insecure:
        setting.note("'insecure' has no effect: clients check this server, not the other way")
    return options


def link_tls(setting: Setting) -> tuple[TlsOptions, DialTls]:
    """Read a TLS block between servers: for those that call us, and for calling them."""
    options, insecure = _read(setting)
    pair = options.certificates[0] if options.certificates else CertificatePair("", "")
    dialled = DialTls(
        options.ca_file,
        pair.cert_file,
        pair.key_file,
        insecure,
        options.handshake_first,
        options.timeout,
        options.pinned_certs,
    )
    if insecure:
        setting.warn("does not check who the other server is: set 'insecure' in trials only")
    return options, dialled


def _read(setting: Setting) -> tuple[TlsOptions, bool]:
    known = len(setting.findings.problems)
    values = read(setting.block(), _TLS, setting.findings)
    weak = values.pop("allow_insecure_cipher_suites", False)
    insecure = bool(values.pop("insecure", False))
    for suite in values.get("cipher_suites", ()):
        if not weak and _WEAK.fullmatch(suite):
            raise setting.wrong(f"names the insecure cipher {suite}: remove it")
    if len(setting.findings.problems) > known:
        return TlsOptions(), insecure
    pairs = _pairs(values, setting)
    if values.get("verify_and_map"):
        values["verify"] = True
    if not values.get("timeout", 1.0):
        del values["timeout"]
    options = TlsOptions(certificates=pairs, **values)
    _check_files(options, setting)
    return options, insecure


def _pairs(values: Values, setting: Setting) -> tuple[CertificatePair, ...]:
    cert, key = values.pop("cert_file", ""), values.pop("key_file", "")
    listed: tuple[CertificatePair, ...] = values.pop("certs", ())
    if listed and cert:
        raise setting.wrong("has both cert_file and certs: keep one")
    if bool(cert) != bool(key):
        raise setting.wrong(f"has no {'key_file' if cert else 'cert_file'}: add it")
    return (CertificatePair(cert, key),) if cert else listed


def _check_files(options: TlsOptions, setting: Setting) -> None:
    try:
        for pair in options.certificates:
            check_pair(pair)
        if options.ca_file:
            check_authority(options.ca_file)
    except BadTlsFile as error:
        raise setting.wrong(f"cannot be used: {error}") from error


def _certs(setting: Setting) -> tuple[CertificatePair, ...]:
    made = []
    for element in setting.elements():
        values = read(element.block(), _PAIR, setting.findings)
        if not (values.get("cert_file") and values.get("key_file")):
            raise element.wrong("needs both a cert_file and a key_file in each entry")
        made.append(CertificatePair(**values))
    return tuple(made)


def _handshake_first(setting: Setting) -> Values:
    if isinstance(setting.value, bool):
        return {"handshake_first": setting.value}
    word = setting.text().lower()
    if word in ("true", "on", "false", "off"):
        return {"handshake_first": word in ("true", "on")}
    if word in ("auto", "auto_fallback"):
        return {"handshake_first": True, "fallback_delay": FALLBACK_DELAY}
    try:
        return {"handshake_first": True, "fallback_delay": parse_duration(word)}
    except ValueError:
        reason = f"must be true, false, auto or a duration, not {word!r}"
        raise setting.wrong(reason) from None


def _pinned(setting: Setting) -> frozenset[str]:
    prints = frozenset(element.text().lower() for element in setting.elements())
    for text in sorted(prints):
        if not _FINGERPRINT.fullmatch(text):
            raise setting.wrong(f"must list SHA-256 digests as 64 hex digits, not {text!r}")
    return prints


def _min_version(setting: Setting) -> str:
    version = _VERSIONS.get(setting.text())
    if version is None:
        raise setting.wrong(f"must be '1.2' or '1.3', not {setting.value!r}")
    if version < "1.2":
        raise setting.wrong(f"{version} is not supported: '1.2' is the least")
    return version


def _listed(setting: Setting) -> tuple[str, ...]:
    names = tuple(element.text() for element in setting.elements())
    if not names:
        raise setting.wrong("must not be empty: leave it out for the default")
    return names


def _ciphers(setting: Setting) -> tuple[str, ...]:
    names = _listed(setting)
    for name in names:
        if not (_STRONG.fullmatch(name) or _WEAK.fullmatch(name)):
            raise setting.wrong(f"names an unknown cipher suite {name}")
    return names


def _curves(setting: Setting) -> tuple[str, ...]:
    names = _listed(setting)
    for name in names:
        if name not in _CURVES:
            raise setting.wrong(f"names an unknown curve {name}: one of {', '.join(_CURVES)}")
    return names


def _known_urls(setting: Setting) -> None:
    if setting.switch():
        raise setting.wrong("is not supported: the authority that signed a certificate is checked")


def _ocsp_peer(setting: Setting) -> None:
    if setting.value is not False:
        raise setting.wrong("is not supported: certificates are checked without OCSP")


_PAIR: Table = {"cert_file": ("cert_file", Setting.text), "key_file": ("key_file", Setting.text)}
_TLS: Table = {
    "cert_file": ("cert_file", Setting.text),
    "key_file": ("key_file", Setting.text),
    "ca_file": ("ca_file", Setting.text),
    "insecure": ("insecure", Setting.switch),
    "verify": ("verify", Setting.switch),
    "verify_and_map": ("verify_and_map", Setting.switch),
    "verify_cert_and_check_known_urls": ("", _known_urls),
    "allow_insecure_cipher_suites": ("allow_insecure_cipher_suites", Setting.switch),
    "cipher_suites": ("cipher_suites", _ciphers),
    "curve_preferences": ("curve_preferences", _curves),
    "timeout": ("timeout", Setting.timeout),
    "connection_rate_limit": ("connection_rate_limit", Setting.integer),
    "pinned_certs": ("pinned_certs", _pinned),
    **dict.fromkeys(("handshake_first", "first", "immediate"), ("", _handshake_first)),
    **dict.fromkeys(("certs", "certificates"), ("certs", _certs)),
    "min_version": ("min_version", _min_version),
    "ocsp_peer": ("", _ocsp_peer),
    **dict.fromkeys(
        (
            "cert_store",
            "cert_match",
            "cert_match_by",
            "cert_match_skip_invalid",
            "ca_certs_match",
        ),
        ("", unsupported("certificate stores exist on Windows only: name files")),
    ),
}
