//! Keys in all their forms, and the errors for files that are wrong.
//!
//! The keys were written by OpenSSL, as `NAME` says: `openssl genrsa -traditional`, `ecparam
//! -genkey`, `rsa|ec -des3|-aes128...` (legacy), `pkcs8 -topk8 -v2 ...` (pkcs8). The password is
//! 1234.

use std::fs;
use std::path::Path;

use crate::support::{Holder, Server, client_params, handshake_with, keys, params, self_signed};
use rcgen::date_time_ymd;
use zodium_tls::{Password, ServerFiles, ServerTls, TlsError};

const ENCRYPTED: [&str; 7] = [
    "rsa_legacy_des3.pem",
    "ec_legacy_aes128.pem",
    "ec_legacy_aes192.pem",
    "ec_legacy_aes256.pem",
    "ec_pkcs8_aes256.pem",
    "ec_pkcs8_des3_sha1.pem",
    "ec_pkcs8_scrypt.pem",
];

fn password_file(folder: &Path, text: &str) -> Option<Password> {
    fs::write(folder.join("password"), text).unwrap();
    Some(Password::File(folder.join("password")))
}

fn error(files: ServerFiles) -> String {
    ServerTls::load(files).unwrap_err().to_string()
}

#[test]
fn keys_are_read_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["rsa_pkcs1.pem", "ec_sec1.pem", "ec_pkcs8.pem"] {
        ServerTls::load(Server::with_key(key, None)).unwrap();
        let unneeded = password_file(folder.path(), "x");
        ServerTls::load(Server::with_key(key, unneeded)).unwrap();
    }
    for key in ENCRYPTED {
        for text in ["1234", "1234\n", "1234\r\nsecond line\n"] {
            let password = password_file(folder.path(), text);
            ServerTls::load(Server::with_key(key, password)).unwrap();
        }
    }
}

#[test]
fn the_password_may_be_in_the_environment() {
    let variable = Some(Password::Environment("ZODIUM_TEST_NO_SUCH_VARIABLE".to_owned()));
    let error = error(Server::with_key("ec_pkcs8_aes256.pem", variable));
    assert!(error.contains("variable ZODIUM_TEST_NO_SUCH_VARIABLE"), "{error}");
    // Cargo sets this variable. That it is the wrong password shows that it was read.
    let variable = Some(Password::Environment("CARGO_PKG_NAME".to_owned()));
    let loaded = ServerTls::load(Server::with_key("ec_pkcs8_aes256.pem", variable));
    assert!(matches!(loaded, Err(TlsError::WrongPassword { .. })), "{loaded:?}");
}

#[test]
fn wrong_passwords_are_told_from_broken_keys() {
    let folder = tempfile::tempdir().unwrap();
    for key in ENCRYPTED {
        let missing = error(Server::with_key(key, None));
        assert!(missing.contains(key) && missing.contains("password is needed"), "{missing}");
        for number in 0..50 {
            if key == "ec_pkcs8_scrypt.pem" && number > 2 {
                break;
            }
            let wrong = password_file(folder.path(), &format!("wrong {number}"));
            let error = error(Server::with_key(key, wrong));
            assert!(error.contains("does not open the key"), "{key}: {error}");
        }
    }
    let password = password_file(folder.path(), "1234");
    let error = error(Server::with_key("ec_pkcs8_pbes1.pem", password));
    assert!(error.contains("openssl pkcs8 -topk8"), "{error}");
}

#[test]
fn certificate_and_key_may_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let both = folder.path().join("both.pem");
    let text = |name: &str| fs::read_to_string(keys().join(name)).unwrap();
    fs::write(&both, text("ec_sec1.pem") + &text("ec.crt")).unwrap();
    let mut files = Server::with_key("ec_sec1.pem", None);
    (files.own.certificate, files.own.key) = (both, None);
    ServerTls::load(files.clone()).unwrap();
    files.own.certificate = keys().join("ec.crt");
    let error = error(files);
    assert!(error.contains("ec.crt: no private key in it"), "{error}");
}

/// The clock of a machine may be set only after the server's start.
#[test]
fn a_certificate_that_is_not_valid_now_is_taken_at_the_start_and_no_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = params("old");
    old.not_before = date_time_ymd(2001, 1, 1);
    old.not_after = date_time_ymd(2002, 1, 1);
    let old = self_signed(&old);
    let key = pem::encode(&pem::Pem::new("PRIVATE KEY", old.key.secret_der()));
    let path = folder.path().join("old.pem");
    fs::write(&path, old.pem() + &key).unwrap();
    let mut files = Server::with_key("ec_sec1.pem", None);
    (files.own.certificate, files.own.key) = (path, None);
    let error = ServerTls::load(files).unwrap().reload().unwrap_err().to_string();
    assert!(error.contains("old.pem: the certificate of CN=old expired on"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_the_file() {
    let good = Server::with_key("ec_sec1.pem", None);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let empty = write("empty.pem", "nothing\n");
    let broken = write("broken.pem", &pem::encode(&pem::Pem::new("CERTIFICATE", "no DER")));
    let no_list = good.authenticate.clone();
    let no_list =
        fs::read_to_string(no_list).unwrap() + &pem::encode(&pem::Pem::new("X509 CRL", "no DER"));
    let no_list = write("list.pem", &no_list);
    let no_files = folder.path().join("directory");
    fs::create_dir(&no_files).unwrap();
    let with = |change: &dyn Fn(&mut ServerFiles)| {
        let mut files = good.clone();
        change(&mut files);
        error(files)
    };
    for (error, expected) in [
        (with(&|f| f.own.certificate = empty.clone()), "empty.pem: no certificate in it"),
        (with(&|f| f.own.certificate = broken.clone()), "broken.pem: a certificate cannot be used"),
        (with(&|f| f.own.certificate = "/no/file".into()), "/no/file: cannot be read"),
        (with(&|f| f.own.key = Some(empty.clone())), "empty.pem: no private key in it"),
        (with(&|f| f.own.key = Some(keys().join("v1_client.pem"))), "does not belong to the first"),
        (with(&|f| f.authenticate = empty.clone()), "empty.pem: no certificate in it"),
        (with(&|f| f.authenticate = broken.clone()), "broken.pem: a certificate cannot be used"),
        (with(&|f| f.authenticate = no_list.clone()), "list.pem: a revocation list cannot be used"),
        (with(&|f| f.authenticate = no_files.clone()), "directory: no certificate in it"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn kinds_of_keys_that_are_not_supported_are_named() {
    let mut files = Server::with_key("p521.pem", None);
    files.own.certificate = keys().join("p521.crt");
    let text = error(files);
    assert!(text.contains("p521.pem: the key cannot be used"), "{text}");
    assert!(text.contains("ECDSA on P-256 or P-384"), "{text}");
    let client = Holder::of_files("p521_client.crt", "ec_pkcs8.pem");
    let authority = fs::read_to_string(keys().join("p521.crt")).unwrap();
    let server = Server::new([("ca.pem", authority)]).load();
    let side = server.connection();
    handshake_with(&side, Some(&client), rustls::ALL_VERSIONS).unwrap_err();
    let reason = &side.rejection().unwrap().reason;
    assert!(reason.contains("ECDSA on P-256 or P-384"), "{reason}");
}

#[test]
fn keys_beside_the_certificates_of_a_directory_do_no_harm() {
    let mut files = Server::with_key("ec_sec1.pem", None);
    files.authenticate = keys();
    ServerTls::load(files).unwrap();
}

#[test]
fn links_that_lead_nowhere_are_passed_over() {
    let listed = self_signed(&client_params("listed"));
    let server = Server::new([("listed.pem", listed.pem())]);
    let link = server.folder.path().join("797ccacd.0");
    std::os::unix::fs::symlink("removed.pem", link).unwrap();
    assert_eq!(server.meets(&listed).unwrap().subject, "CN=listed");
}

#[test]
fn broken_certificates_are_explained_without_names_of_types() {
    let pem = |der: &[u8]| pem::encode(&pem::Pem::new("CERTIFICATE", der));
    let whole = self_signed(&params("listed")).chain[0].to_vec();
    let broken = [&whole[..whole.len() / 2], b"\x30\x03abc", b"\xff\xff", b""];
    for der in broken {
        let server = Server::new([("broken.pem", pem(der))]);
        let text = error(server.files.clone());
        assert!(text.contains("broken.pem: "), "{text}");
        assert!(!text.contains(['(', '{', '"']) && !text.contains("Error"), "{text}");
    }
}
