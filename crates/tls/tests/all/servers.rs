//! Which servers a client trusts, and under which names; over both versions of TLS.

use std::sync::Arc;

use crate::support::{Authority, Holder, client_params, params, self_signed};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use zodium_tls::{ClientFiles, ClientTls, HandshakeFailure, Trust};

/// A client without a certificate, and the folder of its files.
struct Client {
    _folder: tempfile::TempDir,
    tls: ClientTls,
}

impl Client {
    fn that_lists(pem: String) -> Client {
        Client::new(pem, Trust::Listed)
    }

    fn new(pem: String, trust: impl FnOnce(std::path::PathBuf) -> Trust) -> Client {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trusted.pem");
        std::fs::write(&path, pem).unwrap();
        let tls = ClientTls::load(&ClientFiles { own: None, trust: trust(path) }).unwrap();
        Client { _folder: folder, tls }
    }

    /// The result of a handshake with a server that it reaches as `name`, over either version.
    fn meets(&self, holder: &Holder, name: &str) -> Result<(), String> {
        let [older, newer] = [&rustls::version::TLS12, &rustls::version::TLS13].map(|version| {
            let key = ring::sign::any_supported_type(&holder.key).unwrap();
            let shown = SingleCertAndKey::from(CertifiedKey::new(holder.chain.clone(), key));
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(shown));
            let name = ServerName::try_from(name.to_owned()).unwrap();
            shake(
                &mut ClientConnection::new(self.tls.config(), name).unwrap(),
                &mut ServerConnection::new(Arc::new(config)).unwrap(),
            )
        });
        assert_eq!(older, newer);
        newer
    }
}

fn shake(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), String> {
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().map_err(|error| HandshakeFailure::from(error).to_string())?;
    }
    Ok(())
}

fn server_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

#[track_caller]
fn assert_refused(outcome: Result<(), String>, expected: &str) {
    let refused = outcome.unwrap_err();
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn a_server_of_a_listed_authority_is_believed_under_its_names() {
    let authority = Authority::new("authority");
    let client = Client::that_lists(authority.certificate.pem());
    let server = authority.sign(server_params("db"));
    assert_eq!(client.meets(&server, "server"), Ok(()));
    let other = "not for other but for";
    assert_refused(client.meets(&server, "other"), other);
    assert_refused(client.meets(&server, "127.0.0.1"), "not for 127.0.0.1 but for");
    let unnamed = authority.sign(CertificateParams::default());
    assert_refused(client.meets(&unnamed, "server"), "not for server but for no name at all");
    let stranger = Authority::new("other").sign(server_params("db"));
    assert_refused(client.meets(&stranger, "server"), "neither it nor its issuer is trusted");
}

#[test]
fn a_listed_server_is_believed_under_any_name_whatever_kind_its_certificate_is() {
    for holder in [
        self_signed(&params("plain")),
        Authority::new("unlisted").sign(server_params("signed by another authority")),
        Holder::of_files("v1_client.crt", "v1_client.pem"),
        Holder::of_files("rsa.crt", "rsa_pkcs1.pem"),
    ] {
        let client = Client::that_lists(holder.pem());
        assert_eq!(client.meets(&holder, "any"), Ok(()));
    }
}

#[test]
fn a_name_does_not_count_where_it_is_said_so_but_its_authority_does() {
    let authority = Authority::new("authority");
    let client = Client::new(authority.certificate.pem(), Trust::ListedUnderAnyName);
    assert_eq!(client.meets(&authority.sign(server_params("db")), "other"), Ok(()));
    let stranger = Authority::new("other").sign(server_params("db"));
    assert_refused(client.meets(&stranger, "server"), "neither it nor its issuer is trusted");
}

#[test]
fn certificates_for_clients_and_old_ones_are_no_servers() {
    let authority = Authority::new("authority");
    let mut old = server_params("old");
    old.not_before = date_time_ymd(2001, 1, 1);
    old.not_after = date_time_ymd(2002, 1, 1);
    for (params, expected) in [(client_params("alice"), "not for servers"), (old, "has expired")] {
        let holder = authority.sign(params);
        for listed in [authority.certificate.pem(), holder.pem()] {
            assert_refused(Client::that_lists(listed).meets(&holder, "server"), expected);
        }
    }
}

#[test]
fn a_client_with_one_pinned_server_trusts_no_other_of_its_authority() {
    let authority = Authority::new("authority");
    let [known, other] = ["known", "other"].map(|name| authority.sign(server_params(name)));
    let chain = known.pem() + &authority.certificate.pem();
    let client = Client::new(chain, Trust::Only);
    assert_eq!(client.meets(&known, "any"), Ok(()));
    assert_refused(client.meets(&other, "server"), "neither it nor its issuer is trusted");
    let client = Client::new(authority.certificate.pem(), Trust::Only);
    assert_refused(client.meets(&known, "server"), "neither it nor its issuer is trusted");
}
