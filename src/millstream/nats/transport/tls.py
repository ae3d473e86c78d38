"""Tls: what one ``tls`` block offers to clients; it can be read again while the server runs."""

import ssl
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

_CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Pair(Protocol):
    """A certificate and its key, as files."""

    @property
    def cert_file(self) -> str:
        """The certificate and those that lead to its authority."""
        ...

    @property
    def key_file(self) -> str:
        """The private key."""
        ...


class TlsTerms(Protocol):
    """What a ``tls`` block says; ``server.options.TlsOptions`` is one."""

    @property
    def certificates(self) -> Sequence[Pair]:
        """What the server shows."""
        ...

    @property
    def ca_file(self) -> str:
        """Whom to trust; empty means whom the machine trusts."""
        ...

    @property
    def verify(self) -> bool:
        """Whether clients must show a certificate."""
        ...

    @property
    def verify_and_map(self) -> bool:
        """Whether the certificate also says which user it is."""
        ...

    @property
    def timeout(self) -> float:
        """How long a handshake may take."""
        ...

    @property
    def handshake_first(self) -> bool:
        """Whether nothing is sent before the handshake."""
        ...

    @property
    def fallback_delay(self) -> float:
        """How long a handshake is waited for before INFO goes out in plain text; 0 = for ever."""
        ...

    @property
    def pinned_certs(self) -> AbstractSet[str]:
        """Digests of the only keys that clients may have; empty = any."""
        ...

    @property
    def min_version(self) -> str:
        """The oldest TLS accepted."""
        ...

    @property
    def cipher_suites(self) -> Sequence[str]:
        """The only ciphers for TLS 1.2; empty = the library's choice."""
        ...

    @property
    def curve_preferences(self) -> Sequence[str]:
        """The curves for key exchange; the first that the library knows is taken."""
        ...

    @property
    def connection_rate_limit(self) -> int:
        """Handshakes a second; 0 = any number."""
        ...


class Tls:
    """Makes contexts for handshakes, and judges the certificates that clients show."""

    def __init__(self, terms: TlsTerms) -> None:
        self.terms = terms
        self._second = 0
        self._begun = 0
        self.reload()

    def reload(self, terms: TlsTerms | None = None) -> None:
        """Read the files again, for handshakes from now on; raises and changes nothing if bad."""
        fresh = terms or self.terms
        if not fresh.certificates:
            raise ValueError("TLS needs a certificate: name cert_file and key_file")
        contexts = [_context(fresh, pair) for pair in fresh.certificates]
        named = _by_name(fresh.certificates, contexts) if len(contexts) > 1 else {}
        self.terms, self.context, self._named = fresh, contexts[0], named
        if named:
            self.context.sni_callback = self._choose

    def server_context(self) -> ssl.SSLContext:
        """Return a context for an HTTPS listener that keeps it; it follows every ``reload``.

        What ``reload`` cannot change there is whether clients must show a certificate.
        """
        context = _context(self.terms, self.terms.certificates[0])
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = self._choose
        return context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, was: ssl.SSLContext
    ) -> None:
        """Show the certificate that carries the name asked for, else the first."""
        asked = (name or "").lower()
        wild = "*." + asked.partition(".")[2]
        connection.context = self._named.get(asked) or self._named.get(wild) or self.context

    def allows(self, now: float) -> bool:
        """Whether one more handshake may begin at ``now`` under the rate limit."""
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        self._begun += 1
        limit = self.terms.connection_rate_limit
        return not limit or self._begun <= limit

    def accepts(self, shown: bytes | None) -> bool:
        """Whether a client that showed this certificate (DER), or none, may go on."""
        pinned = self.terms.pinned_certs
        if not pinned:
            return True
        from millstream.nats.transport.certificate import (
            fingerprint,  # slow to load, and rarely needed
        )

        return shown is not None and fingerprint(shown) in pinned

    def names(self, shown: bytes | None) -> tuple[str, ...]:
        """Return the names in a certificate; only a verified one names anybody."""
        if shown is None or not self.terms.verify:
            return ()
        from millstream.nats.transport.certificate import names

        return names(shown)

    def shown(self, certificate: bytes | None) -> dict[str, str] | None:
        """Return how a verified certificate is shown to who asks about connections."""
        if certificate is None or not self.terms.verify:
            return None
        from millstream.nats.transport.certificate import shown

        return shown(certificate)


def _by_name(
    pairs: Sequence[Pair], contexts: Sequence[ssl.SSLContext]
) -> dict[str, ssl.SSLContext]:
    """Return which context answers to which host name; the first to carry a name keeps it."""
    from millstream.nats.transport.certificate import host_names

    named: dict[str, ssl.SSLContext] = {}
    for pair, context in zip(pairs, contexts, strict=True):
        for name in host_names(pair.cert_file):
            named.setdefault(name, context)
    return named


def _context(terms: TlsTerms, pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[terms.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(pair.cert_file, pair.key_file)
    if terms.cipher_suites:
        _choose_ciphers(context, terms.cipher_suites)
    _choose_curve(context, terms.curve_preferences)
    if terms.verify or terms.verify_and_map:
        context.verify_mode = ssl.CERT_REQUIRED
        if terms.ca_file:
            context.load_verify_locations(cafile=terms.ca_file)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _choose_ciphers(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Set the TLS 1.2 suites; those of TLS 1.3 are all sound, and not ours to choose."""
    older = [_openssl_name(suite) for suite in suites if "_WITH_" in suite]
    if older:
        context.set_ciphers(":".join(older))


def _openssl_name(suite: str) -> str:
    """Turn TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 into ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    for bits in ("128", "256"):
        cipher = cipher.replace(f"AES_{bits}", f"AES{bits}")
    cipher = cipher.replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}_"
    return (prefix + cipher).replace("3DES_EDE", "DES_CBC3").replace("_", "-")


def _choose_curve(context: ssl.SSLContext, preferences: Sequence[str]) -> None:
    for name in preferences:
        if name in _CURVES:
            context.set_ecdh_curve(_CURVES[name])
            return
