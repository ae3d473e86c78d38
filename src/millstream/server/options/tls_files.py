"""Certificate files: whether they can be used, said in words before anything listens."""

import ssl

from millstream.server.options.options import CertificatePair


class BadTlsFile(Exception):
    """A certificate or key that cannot be read or does not fit; the text names the file."""


def check_pair(pair: CertificatePair) -> None:
    """Raise unless the certificate and the key can be read and belong together."""
    for file in (pair.cert_file, pair.key_file):
        _check_readable(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "no certificate and key in PEM form"
        raise BadTlsFile(f"{pair.cert_file} and {pair.key_file}: {reason}") from error


def check_authority(file: str) -> None:
    """Raise unless the file holds certificates."""
    _check_readable(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cafile=file)
    except (ssl.SSLError, OSError) as error:
        raise BadTlsFile(f"{file}: no certificate in PEM form") from error


def _check_readable(file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise BadTlsFile(f"{file}: {error.strerror}") from error
