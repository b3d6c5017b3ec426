//! The server's own certificate and key, as its configuration names them.

use zodium_configuration::{KeyPassword, TlsOptions};
use zodium_tls::{CertificateFiles, Password};

/// The files of the server's certificate and its key.
pub(crate) fn own_files(options: &TlsOptions) -> CertificateFiles {
    CertificateFiles {
        certificate: options.certificate.clone(),
        key: options.key.clone(),
        key_password: options.key_password.clone().map(|password| match password {
            KeyPassword::File(path) => Password::File(path),
            KeyPassword::Environment(name) => Password::Environment(name),
        }),
    }
}
