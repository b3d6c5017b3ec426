//! Errors of TLS files.

use std::path::PathBuf;

use thiserror::Error;

/// Why TLS cannot be set up. Each error names the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file or directory cannot be read.
    #[error("{path}: cannot be read: {reason}", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// The environment variable for the password is not set.
    #[error("the environment variable {name}, which holds the password of the key, is not set")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The file is not a complete PEM file.
    #[error("{path}: not a PEM file: {reason}", path = .path.display())]
    NotPem {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has no certificate.
    #[error("{path}: no certificate in it (a section BEGIN CERTIFICATE)", path = .path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// The file has no private key.
    #[error(
        "{path}: no private key in it (a section BEGIN PRIVATE KEY); a key in a file of its own \
         has to be named",
        path = .path.display()
    )]
    NoKey {
        /// Which.
        path: PathBuf,
    },
    /// A certificate or a list that cannot be used.
    #[error("{path}: {what} cannot be used: {reason}", path = .path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Which part of it.
        what: String,
        /// Why.
        reason: String,
    },
    /// The key is encrypted, and there is no password.
    #[error("{path}: the key is encrypted, its password is needed", path = .path.display())]
    NoPassword {
        /// Which file.
        path: PathBuf,
    },
    /// The password does not open the key.
    #[error("{path}: the password does not open the key", path = .path.display())]
    WrongPassword {
        /// Which file.
        path: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error(
        "{key}: the key does not belong to the first certificate in {certificate}",
        key = .key.display(),
        certificate = .certificate.display()
    )]
    OtherKey {
        /// The file with the key.
        key: PathBuf,
        /// The file with the certificate.
        certificate: PathBuf,
    },
    /// The own certificate is not valid now.
    #[error("{path}: the certificate of {subject} {when}", path = .path.display())]
    NotValidNow {
        /// Which file.
        path: PathBuf,
        /// Its subject.
        subject: String,
        /// Since or until when, in words.
        when: String,
    },
    /// The client's certificate is for servers only.
    #[error(
        "{path}: the certificate says, in its extended key usage, that it is not for clients: \
         servers refuse it; name another with --ssl-certificate",
        path = .path.display()
    )]
    NotForClients {
        /// Which file.
        path: PathBuf,
    },
}
