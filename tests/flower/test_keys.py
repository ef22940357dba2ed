import os
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.verification import PolicyBuilder, Store

from fedmap.errors import FedmapError
from fedmap.flower.keys import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path / "keys")
    made.make(["oslo", "bergen"], ["fl.example.org", "10.1.2.3"])
    return made


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(keys: Keys) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in keys.folder.rglob("*") if path.is_file()}


def test_the_server_is_trusted_under_its_name_by_whoever_trusts_the_authority(keys):
    store = Store([certificate(keys.authority)])
    verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName("fl.example.org"))
    chain = verifier.verify(certificate(keys.server), [])
    assert chain == [certificate(keys.server), certificate(keys.authority)]


def shake_hands(server: Keys, authority: Path, host: str) -> None:
    """A TLS handshake of a client that trusts this authority with this server."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(server.server, server.server_key)
    theirs = ssl.create_default_context(cafile=authority)
    theirs.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(to_client, to_server, server_hostname=host)
    answers = ours.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, answers]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.parametrize("host", ["fl.example.org", "10.1.2.3", "127.0.0.1", "localhost"])
def test_a_connection_to_each_host_of_the_server_is_made(keys, host):
    shake_hands(keys, keys.authority, host)


def test_a_connection_to_another_host_is_refused(keys):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(keys, keys.authority, "other.example.org")


def test_a_server_of_another_authority_is_refused(keys, tmp_path):
    other = Keys(tmp_path / "other")
    other.make(["oslo"])
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        shake_hands(other, keys.authority, "127.0.0.1")


def test_the_servers_certificate_cannot_sign_others(keys):
    basic = certificate(keys.server).extensions.get_extension_for_class(x509.BasicConstraints)
    use = certificate(keys.server).extensions.get_extension_for_class(x509.KeyUsage)
    assert (basic.value.ca, use.value.key_cert_sign) == (False, False)


def test_a_sites_two_keys_belong_together_and_are_of_the_kind_that_flower_takes(keys):
    private = load_ssh_private_key(keys.site_key("oslo").read_bytes(), None)
    public = load_ssh_public_key(keys.site_public("oslo").read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public


def test_sites_have_different_keys(keys):
    assert keys.site_key("oslo").read_bytes() != keys.site_key("bergen").read_bytes()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_private_keys_and_enters_the_folders(keys):
    private = [keys.authority_key, keys.server_key, keys.site_key("oslo"), keys.site_key("bergen")]
    assert {mode(path) for path in private} == {0o600}
    assert {mode(keys.folder), mode(keys.folder / "sites")} == {0o700}


def test_a_private_key_is_private_from_its_first_moment(tmp_path, monkeypatch):
    modes = {}
    real = os.open

    def watched(path, flags, mode=0o777, **more):
        modes[Path(path).name.removesuffix(".part")] = mode
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    Keys(tmp_path / "keys").make(["oslo"])
    assert {modes[name] for name in ("ca.key", "server.key", "oslo.key")} == {0o600}


def test_a_key_that_is_there_is_not_replaced(keys):
    before = contents(keys)
    with pytest.raises(FedmapError, match="site bergen has a key already"):
        keys.make(["trondheim", "bergen"])
    assert contents(keys) == before


def test_a_new_site_leaves_all_other_keys_as_they_are(keys):
    before = contents(keys)
    keys.make(["trondheim"])
    after = contents(keys)
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == {keys.site_key("trondheim"), keys.site_public("trondheim")}


def test_a_new_site_needs_no_private_key_of_the_authority(keys):
    keys.authority_key.unlink()
    keys.make(["trondheim"])
    assert keys.site_key("trondheim").exists()


def test_a_renewed_server_has_a_new_key_for_the_same_hosts(keys):
    before = keys.server_key.read_bytes()
    keys.make([], renew_server=True)
    assert keys.server_key.read_bytes() != before
    shake_hands(keys, keys.authority, "fl.example.org")


def test_a_server_is_not_renewed_without_the_authoritys_key(keys):
    keys.authority_key.unlink()
    with pytest.raises(FedmapError, match=r"ca\.key is not there"):
        keys.make([], renew_server=True)


def test_other_hosts_for_a_server_that_has_a_certificate_are_refused(keys):
    with pytest.raises(FedmapError, match=r"for fl\.example\.org, 10\.1\.2\.3"):
        keys.make(["trondheim"], ["other.example.org"])


@pytest.mark.parametrize("name", ["../oslo", "a/b", "", ".hidden", "-x", "os lo", "å", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(FedmapError, match="is not allowed: letters, digits"):
        Keys(tmp_path / "keys").make(["oslo", name])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("host", ["a b", "", "-x", "https://x.org", "1.2.3.4:80"])
def test_a_host_that_is_none_is_refused(tmp_path, host):
    with pytest.raises(FedmapError, match="is neither an IP address nor a name"):
        Keys(tmp_path / "keys").make(["oslo"], [host])


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(FedmapError, match=r"holds files but no ca\.crt"):
        Keys(tmp_path).make(["oslo"])


def test_of_two_that_make_the_same_keys_at_once_one_is_refused(tmp_path):
    told = []

    def make() -> None:
        try:
            Keys(tmp_path / "keys").make(["oslo"])
        except FedmapError as wrong:
            told.append(str(wrong))

    both = [threading.Thread(target=make) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    private = load_ssh_private_key(Keys(tmp_path / "keys").site_key("oslo").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert len(told) == 1


def test_each_file_is_explained(keys):
    explained = {path for path, what, where in keys.explained(["oslo", "bergen"])}
    assert explained == set(contents(keys))
