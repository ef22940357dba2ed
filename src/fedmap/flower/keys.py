"""The keys of a federation: an authority that signs, the server's certificate, and for each site
the key by which the server knows it. A private key is never readable by others, not for a moment.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedmap.errors import FedmapError
from fedmap.simulate.system import wait_for

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
LOCAL_HOSTS = ("127.0.0.1", "localhost")  # by them the SuperLink's own processes reach it
USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Keys:
    """A folder with the keys of one federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self.authority_key = folder / "ca.key"
        self.server = folder / "server.crt"
        self.server_key = folder / "server.key"

    def site_key(self, site: str) -> Path:
        """The private key of a site."""
        return self.folder / "sites" / f"{site}.key"

    def site_public(self, site: str) -> Path:
        """The public key of a site: what the server is told."""
        return self.folder / "sites" / f"{site}.pub"

    def make(
        self, sites: Sequence[str], hosts: Sequence[str] = (), renew_server: bool = False
    ) -> None:
        """Make what is not there yet: the authority, the server's certificate for its hosts and
        for the machine itself, a key for each of the sites. With `renew_server` the server gets a
        new key and certificate, without hosts for those of the old one."""
        self._check(sites, hosts, renew_server)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            self._check(sites, hosts, renew_server)  # somebody may have been faster
            for folder in (self.folder, self.folder / "sites"):
                folder.mkdir(mode=0o700, exist_ok=True)
                folder.chmod(0o700)
            if not self.authority.exists():
                self._make_authority()
            if renew_server or not self.server.exists():
                renewed = self.server.exists()
                wanted = hosts or (self._hosts() if renewed else [])
                self._make_server(
                    list(dict.fromkeys([*wanted, *LOCAL_HOSTS])), replace if renewed else write_new
                )
            for site in sites:
                self._make_site(site)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time makes keys in the folder: nobody reads what another has half written."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            wait_for(folder)
            yield
        finally:
            os.close(folder)

    def _check(self, sites: Sequence[str], hosts: Sequence[str], renew_server: bool) -> None:
        """Refuse before anything is written."""
        ours = self.authority.exists()
        if not ours and self.folder.exists() and any(self.folder.iterdir()):
            raise FedmapError(
                f"{self.folder} holds files but no ca.crt; keys need a folder of their own, "
                "a new or an empty one"
            )
        for site in sites:
            check_site_name(site)
            if self.site_key(site).exists() or self.site_public(site).exists():
                raise FedmapError(
                    f"site {site} has a key already, {self.site_key(site)}; it is not replaced"
                )
        for host in hosts:
            host_name(host)
        if ours and hosts and self.server.exists() and not renew_server:
            raise FedmapError(
                f"{self.server} is there already, for {', '.join(self._hosts())}; "
                "for other hosts renew it with --renew-server"
            )
        if ours and (renew_server or not self.server.exists()) and not self.authority_key.exists():
            raise FedmapError(
                f"{self.authority_key} is not there; a certificate of the server can only be "
                "signed with it"
            )

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP384R1())
        name = common_name("fedmap federation")
        certificate = (
            certificate_of(key, name, name, key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(uses("key_cert_sign", "crl_sign"), critical=True)
            .sign(key, hashes.SHA384())
        )
        write_new(self.authority_key, pem(key), 0o600)
        write_new(self.authority, certificate.public_bytes(Encoding.PEM), 0o644)

    def _make_server(self, hosts: Sequence[str], write: Callable[[Path, bytes, int], None]) -> None:
        authority = x509.load_pem_x509_certificate(self.authority.read_bytes())
        signer = load_pem_private_key(self.authority_key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP384R1())
        certificate = (
            certificate_of(key, common_name(hosts[0]), authority.subject, signer, SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(uses("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .add_extension(x509.SubjectAlternativeName(map(host_name, hosts)), critical=False)
            .sign(signer, hashes.SHA384())
        )
        write(self.server_key, pem(key), 0o600)
        write(self.server, certificate.public_bytes(Encoding.PEM), 0o644)

    def _make_site(self, site: str) -> None:
        """A pair as `ssh-keygen -t ecdsa -b 384` makes it: what Flower takes."""
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_new(self.site_key(site), private, 0o600)
        write_new(self.site_public(site), public + f" {site}\n".encode(), 0o644)

    def _hosts(self) -> list[str]:
        """The hosts that the server's certificate is for."""
        certificate = x509.load_pem_x509_certificate(self.server.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name.value) for name in names]

    def explained(self, sites: Iterable[str]) -> list[tuple[Path, str, str]]:
        """Each file, what it is for, and where it goes."""
        everyone = [
            (self.authority, "by it everybody knows the server", "server and every site"),
            (self.authority_key, "signs the server's certificate", "nowhere; keep it offline"),
            (self.server, "the server's certificate", "server"),
            (self.server_key, "the server's private key", "server alone"),
        ]
        for site in sites:
            everyone += [
                (self.site_key(site), f"the private key of {site}", f"{site} alone"),
                (self.site_public(site), f"by it the server knows {site}", "server"),
            ]
        return everyone


def check_site_name(site: str) -> None:
    """A site's name is also the name of files."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", site):
        raise FedmapError(
            f"the site's name {site!r} is not allowed: letters, digits, . _ and - are, at most 64, "
            "first a letter or digit"
        )


def host_name(host: str) -> x509.GeneralName:
    """A host as a certificate names it: an address or a name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            raise FedmapError(
                f"host {host!r} is neither an IP address nor a name such as fl.example.org"
            ) from None
        return x509.DNSName(host)


def common_name(text: str) -> x509.Name:
    """A certificate's name with nothing but this text."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def certificate_of(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    """What all certificates have in common, valid from an hour ago: clocks differ."""
    begin = datetime.now(UTC) - timedelta(hours=1)
    known_by = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(known_by, critical=False)
        .add_extension(signed_by, critical=False)
    )


def uses(*allowed: str) -> x509.KeyUsage:
    """What a key may be used for, and nothing else."""
    return x509.KeyUsage(**{use: use in allowed for use in USES})


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as a PEM file without a password."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not be there yet, from its first moment with this mode."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise FedmapError(f"{path} is there already; it is not replaced") from None
    with open(descriptor, "wb") as file:
        file.write(content)


def replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file, or put a new one in its place."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    write_new(part, content, mode)
    os.replace(part, path)
