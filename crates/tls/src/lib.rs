//! TLS as ZEO uses it: own certificates, and peer verification on both sides.
//!
//! Both sides always present a certificate. It is trusted if it is pinned, or if a trusted
//! authority signed it, directly or through intermediates that the peer sends. A trusted
//! certificate must not be on a revocation list. A client also checks the server's name, unless the
//! server's certificate is pinned.
//!
//! Invariant: this crate knows no sockets and no runtime. It turns files into a configuration for
//! rustls, and a certificate into an identity.

#![forbid(unsafe_code)]

mod allow_list;
mod authorities;
mod certificate;
mod client;
mod client_verifier;
mod error;
mod handshake_failure;
mod identity;
mod legacy_key;
mod own_certificate;
mod peer_verifier;
mod pem_file;
mod private_key;
mod revocation;
mod server;
mod server_verifier;
mod side;
#[cfg(test)]
mod test_files;
mod words;

pub use allow_list::AllowList;
pub use client::{ClientFiles, ClientTls, Trust};
pub use error::TlsError;
pub use handshake_failure::{CertificateRejection, HandshakeFailure, client_failure};
pub use identity::PeerIdentity;
pub use own_certificate::{CertificateFiles, Password};
pub use server::{ServerFiles, ServerSide, ServerTls};
