//! Authorities, certificates and handshakes, all in memory except for the server's files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use zodium_tls::{CertificateFiles, Password, PeerIdentity, ServerFiles, ServerSide, ServerTls};

/// An authority that signs.
pub(crate) struct Authority {
    pub(crate) certificate: Certificate,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Holder {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Holder {
    pub(crate) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.chain[0].to_vec()))
    }

    pub(crate) fn of_files(certificate: &str, key: &str) -> Holder {
        Holder {
            chain: vec![CertificateDer::from_pem_file(keys().join(certificate)).unwrap()],
            key: PrivateKeyDer::from_pem_file(keys().join(key)).unwrap(),
        }
    }
}

/// The folder of keys that OpenSSL wrote.
pub(crate) fn keys() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys")
}

pub(crate) fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["server".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

pub(crate) fn authority_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    pub(crate) fn new(common_name: &str) -> Authority {
        Authority::of(authority_params(common_name))
    }

    pub(crate) fn of(params: CertificateParams) -> Authority {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// An authority below this one.
    pub(crate) fn below(&self, common_name: &str) -> Authority {
        let (params, key) = (authority_params(common_name), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn sign(&self, params: CertificateParams) -> Holder {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        holder(&certificate, &key)
    }

    /// A client's certificate.
    pub(crate) fn client(&self, common_name: &str) -> Holder {
        self.sign(client_params(common_name))
    }

    /// A revocation list that will not expire.
    pub(crate) fn revocation_list(&self, serials: &[u64]) -> String {
        self.revocation_list_of(serials, 2026, 4000)
    }

    /// A revocation list, from the first day of one year to that of another.
    pub(crate) fn revocation_list_of(&self, serials: &[u64], from: i32, until: i32) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

pub(crate) fn client_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

pub(crate) fn self_signed(params: &CertificateParams) -> Holder {
    let key = KeyPair::generate().unwrap();
    holder(&params.self_signed(&key).unwrap(), &key)
}

fn holder(certificate: &Certificate, key: &KeyPair) -> Holder {
    Holder {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    }
}

/// A server with a certificate that OpenSSL wrote.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) files: ServerFiles,
}

impl Server {
    /// Creates a server that trusts the files in `trusted`, given by name.
    pub(crate) fn new<'a>(trusted: impl IntoIterator<Item = (&'a str, String)>) -> Server {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in trusted {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let files = ServerFiles {
            own: CertificateFiles {
                certificate: keys().join("ec.crt"),
                key: Some(keys().join("ec_sec1.pem")),
                key_password: None,
            },
            authenticate: folder.path().to_owned(),
        };
        Server { folder, files }
    }

    pub(crate) fn with_key(key: &str, password: Option<Password>) -> ServerFiles {
        let certificate = if key.starts_with("rsa") { "rsa.crt" } else { "ec.crt" };
        ServerFiles {
            own: CertificateFiles {
                certificate: keys().join(certificate),
                key: Some(keys().join(key)),
                key_password: password,
            },
            authenticate: keys().join("ec.crt"),
        }
    }

    pub(crate) fn load(&self) -> ServerTls {
        ServerTls::load(self.files.clone()).unwrap()
    }

    /// The identity that the server sees in a client, or why it rejects the client.
    pub(crate) fn meets(&self, client: &Holder) -> Result<PeerIdentity, String> {
        handshake(&self.load(), Some(client), rustls::ALL_VERSIONS)
    }
}

/// A handshake in memory, with a client that trusts any server.
pub(crate) fn handshake(
    server: &ServerTls,
    client: Option<&Holder>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<PeerIdentity, String> {
    handshake_with(&server.connection(), client, versions)
}

/// A handshake with one side of a connection, which has the reason of a rejection then.
pub(crate) fn handshake_with(
    server: &ServerSide,
    client: Option<&Holder>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<PeerIdentity, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(ring::default_provider())));
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(holder) => {
            let key = ring::sign::any_supported_type(&holder.key).unwrap();
            let identity = CertifiedKey::new(holder.chain.clone(), key);
            let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(identity));
            builder.with_client_cert_resolver(resolver)
        }
    };
    let name = ServerName::try_from("server").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(server.config()).unwrap();
    exchange(&mut client, &mut server)?;
    let chain = server.peer_certificates().unwrap();
    Ok(PeerIdentity::of_certificate(&chain[0]).unwrap())
}

fn exchange(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), String> {
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets().map_err(|error| error.to_string())?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    Ok(())
}

/// Trusts any server that has the key to its certificate; these tests are about clients.
#[derive(Debug)]
struct Credulous(rustls::crypto::CryptoProvider);

impl rustls::client::danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
