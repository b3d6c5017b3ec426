//! Which clients a server trusts: pinned certificates, authorities, revocation lists; over both
//! versions of TLS.

use crate::support::{
    Authority, Holder, Server, authority_params, client_params, handshake, params, self_signed,
};
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, SerialNumber, date_time_ymd};
use rustls::version::{TLS12, TLS13};

fn expired(mut params: rcgen::CertificateParams) -> rcgen::CertificateParams {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params
}

fn numbered(common_name: &str, serial: u64) -> rcgen::CertificateParams {
    let mut params = client_params(common_name);
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

#[test]
fn a_client_of_a_listed_authority_is_known_by_its_subject() {
    let authority = Authority::new("authority");
    let server = Server::new([("ca.pem", authority.certificate.pem())]);
    let client = authority.client("alice");
    for versions in [[&TLS12], [&TLS13]] {
        let identity = handshake(&server.load(), Some(&client), &versions).unwrap();
        assert_eq!(identity.subject, "CN=alice");
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let authority = Authority::new("authority");
    let server = Server::new([("ca.pem", authority.certificate.pem())]);
    for versions in [[&TLS12], [&TLS13]] {
        let refused = handshake(&server.load(), None, &versions).unwrap_err();
        assert!(refused.contains("no certificates"), "{refused}");
    }
}

#[test]
fn a_listed_certificate_is_believed_whatever_kind_it_is() {
    let mut named_authority = params("authority too");
    named_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let unlisted = Authority::new("unlisted");
    let holders = [
        self_signed(&params("plain")),
        self_signed(&named_authority),
        unlisted.client("signed by another authority"),
        Holder::of_files("v1_client.crt", "v1_client.pem"),
        Holder::of_files("rsa.crt", "rsa_pkcs1.pem"),
    ];
    for holder in &holders {
        let server = Server::new([("client.pem", holder.pem())]);
        for versions in [[&TLS12], [&TLS13]] {
            handshake(&server.load(), Some(holder), &versions).unwrap();
        }
        let other = Server::new([("client.pem", self_signed(&params("other")).pem())]);
        let refused = other.meets(holder).unwrap_err();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
    }
}

#[test]
fn a_listed_certificate_without_its_key_is_worth_nothing() {
    let (alice, mallory) = (self_signed(&params("alice")), self_signed(&params("alice")));
    let server = Server::new([("client.pem", alice.pem())]);
    let stolen = Holder { chain: alice.chain, key: mallory.key };
    for versions in [[&TLS12], [&TLS13]] {
        let refused = handshake(&server.load(), Some(&stolen), &versions).unwrap_err();
        assert!(refused.contains("BadSignature"), "{refused}");
    }
}

#[test]
fn a_pinned_client_certificate_cannot_let_in_others() {
    let listed = Authority::of(params("alice"));
    let server = Server::new([("client.pem", listed.certificate.pem())]);
    let refused = server.meets(&listed.client("mallory")).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
}

#[test]
fn expired_certificates_are_refused() {
    let authority = Authority::new("authority");
    let pinned = self_signed(&expired(params("alice")));
    let old_authority = Authority::of(expired(authority_params("old")));
    let server = Server::new([
        ("ca.pem", authority.certificate.pem()),
        ("pin.pem", pinned.pem()),
        ("old.pem", old_authority.certificate.pem()),
    ]);
    for client in [&authority.sign(expired(client_params("alice"))), &pinned] {
        let refused = server.meets(client).unwrap_err();
        assert!(refused.contains("Expired"), "{refused}");
    }
    let refused = server.meets(&old_authority.client("alice")).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    server.meets(&authority.client("alice")).unwrap();
}

#[test]
fn an_authority_that_was_renewed_may_be_listed_twice() {
    let key_of = Authority::new("authority");
    let old = expired(authority_params("authority")).self_signed(key_of.issuer.key()).unwrap();
    let server = Server::new([("a.pem", old.pem() + &key_of.certificate.pem())]);
    server.meets(&key_of.client("alice")).unwrap();
}

#[test]
fn intermediates_come_with_the_client_or_are_listed() {
    let root = Authority::new("root");
    let between = root.below("between");
    let mut client = between.client("alice");
    let server = Server::new([("ca.pem", root.certificate.pem())]);
    let refused = server.meets(&client).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let listing = Server::new([("ca.pem", between.certificate.pem())]);
    listing.meets(&client).unwrap();
    client.chain.push(between.certificate.der().clone());
    server.meets(&client).unwrap();
}

#[test]
fn an_authority_that_may_have_none_below_it_has_none() {
    let mut params = authority_params("root");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = Authority::of(params);
    let between = root.below("between");
    let mut client = between.client("alice");
    client.chain.push(between.certificate.der().clone());
    let server = Server::new([("ca.pem", root.certificate.pem())]);
    let refused = server.meets(&client).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    server.meets(&root.client("bob")).unwrap();
}

#[test]
fn certificates_for_servers_are_not_for_clients() {
    let authority = Authority::new("authority");
    let mut params = params("server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pinned = self_signed(&params);
    let server = Server::new([("ca.pem", authority.certificate.pem() + &pinned.pem())]);
    for client in [pinned, authority.sign(params)] {
        let refused = server.meets(&client).unwrap_err();
        assert!(refused.contains("InvalidPurpose"), "{refused}");
    }
}

#[test]
fn a_revoked_certificate_is_refused() {
    let authority = Authority::new("authority");
    let (alice, bob) = (authority.sign(numbered("alice", 7)), authority.sign(numbered("bob", 8)));
    let list = authority.revocation_list(&[7]);
    for (certificates, lists) in [("ca.pem", "ca.crl"), ("12345678.0", "12345678.r0")] {
        let server =
            Server::new([(certificates, authority.certificate.pem()), (lists, list.clone())]);
        let refused = server.meets(&alice).unwrap_err();
        assert!(refused.contains("Revoked"), "{refused}");
        server.meets(&bob).unwrap();
    }
    let in_one_file = Server::new([("ca.pem", authority.certificate.pem() + &list)]);
    assert!(in_one_file.meets(&alice).unwrap_err().contains("Revoked"));
    let pinned_too = Server::new([("ca.pem", alice.pem() + &list)]);
    assert!(pinned_too.meets(&alice).unwrap_err().contains("Revoked"));
}

#[test]
fn once_there_is_a_list_every_authority_needs_one_that_is_not_out_of_date() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let both = one.certificate.pem() + &other.certificate.pem();
    let old = one.revocation_list_of(&[], 2001, 2002);
    let server = Server::new([("ca.pem", both.clone()), ("one.crl", old.clone())]);
    let refused = server.meets(&one.client("alice")).unwrap_err();
    assert!(refused.contains("ExpiredRevocationList"), "{refused}");
    let refused = server.meets(&other.client("alice")).unwrap_err();
    assert!(refused.contains("UnknownRevocationStatus"), "{refused}");
    let new = one.revocation_list(&[]);
    for lists in [old.clone() + &new, new + &old] {
        let server = Server::new([("ca.pem", both.clone()), ("one.crl", lists)]);
        server.meets(&one.client("alice")).unwrap();
    }
}

#[test]
fn changed_files_hold_for_connections_after_a_reload() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let server = Server::new([("ca.pem", one.certificate.pem())]);
    let (old, new) = (one.client("old"), other.client("new"));
    let tls = server.load();
    let meets = |client| handshake(&tls, Some(client), rustls::ALL_VERSIONS);
    assert!(meets(&old).is_ok() && meets(&new).is_err());
    let path = server.folder.path().join("ca.pem");
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(tls.reload().is_err());
    assert!(meets(&old).is_ok());
    std::fs::write(&path, other.certificate.pem()).unwrap();
    tls.reload().unwrap();
    assert!(meets(&old).is_err() && meets(&new).is_ok());
}
