//! What can be wrong with the files.

use std::path::PathBuf;

use thiserror::Error;

/// Why TLS cannot be set up. Each names the file, and what to do about it.
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
    /// The environment variable that holds the password is not there.
    #[error("the environment variable {name}, which holds the password of the key, is not set")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The file is not PEM all through.
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
    /// The key is encrypted, and no password was given.
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
    /// The certificate to show is not valid now.
    #[error("{path}: the certificate of {subject} {when}", path = .path.display())]
    NotValidNow {
        /// Which file.
        path: PathBuf,
        /// Whom it names.
        subject: String,
        /// Since or until when, in words.
        when: String,
    },
    /// The certificate that a client is to show is for servers only.
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
