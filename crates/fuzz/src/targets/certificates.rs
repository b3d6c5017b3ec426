//! Files with certificates, keys and revocation lists.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zodium_tls::{
    CertificateFiles, ClientFiles, ClientTls, Password, ServerFiles, ServerTls, Trust,
};

use super::{Target, linear};

pub(super) const CERTIFICATES: Target = Target {
    name: "certificates",
    seeds: || {
        // Without files whose key derivation has as many rounds as the file says.
        let files: [&[&str]; 5] = [
            &[
                include_str!("../../../tls/tests/keys/ec.crt"),
                include_str!("../../../tls/tests/keys/ec_pkcs8.pem"),
            ],
            &[
                include_str!("../../../tls/tests/keys/ec.crt"),
                include_str!("../../../tls/tests/keys/ec_sec1.pem"),
            ],
            &[
                include_str!("../../../tls/tests/keys/rsa.crt"),
                include_str!("../../../tls/tests/keys/rsa_legacy_des3.pem"),
            ],
            &[
                include_str!("../../../tls/tests/keys/v1_client.crt"),
                include_str!("../../../tls/tests/keys/v1_client.pem"),
            ],
            &[include_str!("../../../tls/tests/keys/ec_legacy_aes256.pem")],
        ];
        files.iter().map(|parts| parts.concat().into_bytes()).collect()
    },
    check: |input| {
        FOLDER.with(|folder| {
            if let Some(folder) = folder.get_or_init(|| tempfile::tempdir().ok()) {
                check(input, folder.path());
            }
        });
    },
    memory_bytes_max: |length| (16 << 20) + 4 * linear(length),
};

thread_local! {
    /// The readers take files.
    static FOLDER: OnceCell<Option<TempDir>> = const { OnceCell::new() };
}

/// Reads the same file as certificate, as key, and as list of trusted certificates.
fn check(input: &[u8], folder: &Path) {
    let (file, password) = (folder.join("file.pem"), folder.join("password"));
    if fs::write(&file, input).is_err() || fs::write(&password, b"zodium\n").is_err() {
        return;
    }
    let own = CertificateFiles {
        certificate: file.clone(),
        key: None,
        key_password: Some(Password::File(password)),
    };
    let _ = ServerTls::load(ServerFiles { own: own.clone(), authenticate: file.clone() });
    for trust in [Trust::Listed(file.clone()), Trust::Only(file)] {
        let _ = ClientTls::load(&ClientFiles { own: None, trust });
    }
}
