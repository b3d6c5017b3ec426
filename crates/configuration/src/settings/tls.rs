//! `[server.tls]`: certificates and keys.

use std::path::PathBuf;

use super::kinds::zconfig_values::plain_path;
use super::kinds::{File, Text};

/// The source of a key's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPassword {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
}

settings! {
    /// TLS as in ZEO's `<ssl>` section: clients always present a certificate.
    ///
    /// The default has no paths, as they are required: readers begin with it.
    pub struct TlsOptions {
        /// PEM file with the server's certificate and its chain, and possibly its key
        certificate: PathBuf = PathBuf::new(), {
            File;
            key: "certificate", zeo_conf: "certificate", is_required: true,
            option: "ssl-certificate", value: "PATH", env: "ZODIUM_SSL_CERTIFICATE"
        }

        /// PEM file with the key, if it is not in the file of the certificate
        key: Option<PathBuf> = None, {
            File;
            key: "key", zeo_conf: "key", option: "ssl-key", value: "PATH", env: "ZODIUM_SSL_KEY"
        }

        /// The source of the password of an encrypted key.
        key_password: Option<KeyPassword> = None, [
            {
                File;
                key: "key-password-file", elsewhere: "`password-function`",
                help: "File with the password of the key in its first line",
                option: "ssl-key-password-file", value: "PATH",
                env: "ZODIUM_SSL_KEY_PASSWORD_FILE";
                get: |tls| match &tls.key_password {
                    Some(KeyPassword::File(path)) => Some(path.clone()),
                    _ => None,
                },
                set: |tls, path| tls.key_password = Some(KeyPassword::File(path)),
            },
            {
                Text;
                key: "key-password-environment", elsewhere: "`password-function`",
                help: "Environment variable with the password of the key";
                get: |tls| match &tls.key_password {
                    Some(KeyPassword::Environment(name)) => Some(name.clone()),
                    _ => None,
                },
                set: |tls, name| tls.key_password = Some(KeyPassword::Environment(name)),
            },
        ]

        /// PEM file or directory with the certificates of clients, or of the authorities that
        /// signed them
        ///
        /// It may have revocation lists, too.
        authenticate: PathBuf = PathBuf::new(), {
            File;
            key: "authenticate", zeo_conf: "authenticate", is_required: true,
            option: "ssl-authenticate", value: "PATH", env: "ZODIUM_SSL_AUTHENTICATE";
            from_zeo_conf: |text, surroundings| match text {
                "DYNAMIC" | "SIGNED" | "-" => Err(format!(
                    "{text} names no certificates: give a PEM file, or a directory of PEM files, \
                     with certificates of clients or of authorities"
                )),
                path => plain_path(path, surroundings).map(Some),
            }
        }
    }
}
