"""Certificates made for one test: an authority, what it signs, and contexts that use them."""

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)
_WORDS = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
}


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, in files."""

    certificate: x509.Certificate
    cert_file: str
    key_file: str

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)


class Authority:
    """Signs what a test asks for; everything lies in one directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject([("CN", name)])
        self._certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = str(directory / f"{name}.pem")
        Path(self.ca_file).write_bytes(_pem(self._certificate))

    def server(self, name: str = "server") -> Issued:
        """Return a certificate for this machine."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        return self.issue(name, [("CN", name)], names)

    def client(self, name: str = "client", email: str = "") -> Issued:
        names = [x509.RFC822Name(email)] if email else []
        return self.issue(name, [("CN", name)], names)

    def issue(
        self,
        file: str,
        subject: Sequence[tuple[str, str]],
        alternatives: Sequence[x509.GeneralName] = (),
    ) -> Issued:
        """Sign a new key for a subject, given in the order of the certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(subject), self._certificate.subject, key.public_key())
        if alternatives:
            extension = x509.SubjectAlternativeName(alternatives)
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        cert_file, key_file = (self._directory / f"{file}.{kind}.pem" for kind in ("cert", "key"))
        cert_file.write_bytes(_pem(certificate))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return Issued(certificate, str(cert_file), str(key_file))

    def trusting(self, own: Issued | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority and shows ``own``."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if own is not None:
            context.load_cert_chain(own.cert_file, own.key_file)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - _DAY)
        .not_valid_after(_NOW + _DAY)
    )


def _subject(parts: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_WORDS[word], value) for word, value in parts])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
