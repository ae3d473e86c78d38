"""A client's certificate: the names a user may be found by, and the key it may be pinned to."""

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

# The order in which nats-server writes a subject, whatever the order in the certificate.
_WRITTEN = (
    (NameOID.SERIAL_NUMBER, "SERIALNUMBER"),
    (NameOID.COMMON_NAME, "CN"),
    (NameOID.POSTAL_CODE, "POSTALCODE"),
    (NameOID.STREET_ADDRESS, "STREET"),
    (NameOID.STATE_OR_PROVINCE_NAME, "ST"),
    (NameOID.LOCALITY_NAME, "L"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "OU"),
    (NameOID.ORGANIZATION_NAME, "O"),
    (NameOID.COUNTRY_NAME, "C"),
)
_SINGLE = (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER)


def names(der: bytes) -> tuple[str, ...]:
    """Return every name that may name a user, in the order in which users are looked for."""
    certificate = x509.load_der_x509_certificate(der)
    return tuple(dict.fromkeys([*_alternatives(certificate), *_subjects(certificate.subject)]))


def fingerprint(der: bytes) -> str:
    """Return the SHA-256 digest of the public key, as ``pinned_certs`` lists it."""
    key = x509.load_der_x509_certificate(der).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def shown(der: bytes) -> dict[str, str]:
    """Return how /connz shows a client's certificate."""
    return {
        "subject": x509.load_der_x509_certificate(der).subject.rfc4514_string(),
        "spki_sha256": fingerprint(der),
        "cert_sha256": hashlib.sha256(der).hexdigest(),
    }


def end_of(cert_file: str) -> int:
    """Return when a certificate expires, in nanoseconds since the Unix epoch."""
    with open(cert_file, "rb") as file:
        shown = x509.load_pem_x509_certificates(file.read())[0]
    return int(shown.not_valid_after_utc.timestamp()) * 1_000_000_000


def host_names(cert_file: str) -> list[str]:
    """Return the host names of a server's certificate, in lower case; a name may be a wildcard."""
    with open(cert_file, "rb") as file:
        shown = x509.load_pem_x509_certificates(file.read())[0]
    common = shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    try:
        found = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [str(part.value).lower() for part in common]
    return [name.lower() for name in found.get_values_for_type(x509.DNSName)]


def _alternatives(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *found.get_values_for_type(x509.RFC822Name),
        *found.get_values_for_type(x509.DNSName),
        *found.get_values_for_type(x509.UniformResourceIdentifier),
    ]


def _subjects(subject: x509.Name) -> list[str]:
    """Return the subject in each form that a configuration may use."""
    if not subject.rdns:
        return []
    written = ",".join(_parts(subject))
    domains = [str(part.value) for part in subject.get_attributes_for_oid(NameOID.DOMAIN_COMPONENT)]
    return [
        subject.rfc4514_string(),
        ",".join(rdn.rfc4514_string() for rdn in subject.rdns),
        ",".join([written, *(f"DC={domain}" for domain in domains)]),
        written,
    ]


def _parts(subject: x509.Name) -> list[str]:
    parts = []
    for oid, word in _WRITTEN:
        values = [str(part.value) for part in subject.get_attributes_for_oid(oid)]
        if values:
            kept = values[-1:] if oid in _SINGLE else values
            parts.append("+".join(f"{word}={value}" for value in kept))
    return parts
