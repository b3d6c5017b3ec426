"""Certificate authorities, certificates and revocation lists, as files and as SSL contexts.

Key decision: everything is made anew for each run, valid from yesterday on, so that
nothing expires in the repository.  Python's strict checks apply to all of it.
"""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
LONG_AGO = -1000  # days


def day(number):
    return NOW + datetime.timedelta(days=number)


def name_of(common_name, organization=None):
    parts = [(NameOID.ORGANIZATION_NAME, organization), (NameOID.COMMON_NAME, common_name)]
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts if text])


class Holder:
    """A certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    @property
    def pem(self):
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password=None, form=PrivateFormat.PKCS8):
        locked = BestAvailableEncryption(password) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, form, locked)

    def write(self, folder, name):
        """The paths of the certificate and of the key."""
        paths = Path(folder, f"{name}.pem"), Path(folder, f"{name}.key")
        paths[0].write_bytes(self.pem)
        paths[1].write_bytes(self.key_pem())
        return paths


class Authority(Holder):
    """Signs certificates and revocation lists."""

    def __init__(self, common_name):
        key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(common_name)
        super().__init__(make(self.name, key, self.name, key, is_authority=True), key)

    def issue(self, common_name, organization=None, first_day=-1, is_server=False):
        """A certificate that is valid for a year."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name_of(common_name, organization)
        options = {"first_day": first_day, "is_server": is_server}
        return Holder(make(subject, key, self.name, self.key, **options), key)

    def revoke(self, *holders):
        """A revocation list, PEM."""
        builder = x509.CertificateRevocationListBuilder(self.name, day(-1), day(1))
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        builder = builder.add_extension(identifier_of(self.key), critical=False)
        for holder in holders:
            revoked = x509.RevokedCertificateBuilder(holder.certificate.serial_number, day(-1))
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def self_signed(common_name, is_authority=False):
    """A certificate for those who list it itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), name_of(common_name)
    return Holder(make(name, key, name, key, is_authority=is_authority), key)


class Site:
    """An authority, a server's certificate of it, and the folder of those it believes."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = Authority("Example authority")
        self.trusted = folder / "trusted"
        self.trusted.mkdir()
        (self.trusted / "ca.pem").write_bytes(self.authority.pem)
        self.server = self.authority.issue("server", is_server=True)
        self.certificate, self.key = self.server.write(folder, "server")

    def options(self, **other):
        paths = {"certificate": self.certificate, "key": self.key, "authenticate": self.trusted}
        paths.update(other)
        return [word for name, path in paths.items() for word in (f"--ssl-{name}", str(path))]

    def context(self, holder=None, version=None):
        return client_context(self.authority, holder, self.folder, version)


def identifier_of(key):
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def make(subject, key, issuer, issuer_key, first_day=-1, is_authority=False, is_server=False):
    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    wanted = ("key_cert_sign", "crl_sign", "digital_signature")
    usage.update(dict.fromkeys(wanted if is_authority else wanted[2:], True))
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(day(first_day))
        .not_valid_after(day(first_day + 365))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier_of(issuer_key), critical=False)
    )
    if is_server:
        names = [x509.DNSName("localhost")]
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def client_context(authority, holder=None, folder=None, version=None):
    """What `ssl` section of a ZEO client comes to: strict, and with a certificate of its own."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if holder:
        certificate, key = holder.write(folder, f"client-{id(holder)}")
        context.load_cert_chain(certificate, key)
    if version:
        context.minimum_version = context.maximum_version = version
    return context
