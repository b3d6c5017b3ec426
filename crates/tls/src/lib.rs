//! TLS as ZEO uses it: the server's certificate and key, and which clients it believes.
//!
//! Clients always show a certificate. It is believed when it is listed itself, or when a listed
//! authority has signed it, directly or through others that the client sends along; and when no
//! listed revocation list revokes it.
//!
//! Invariant: this crate knows no sockets and no runtime. It turns files into a configuration
//! for rustls, and a certificate into an identity.

#![forbid(unsafe_code)]

mod allow_list;
mod authorities;
mod certificate;
mod error;
mod identity;
mod legacy_key;
mod pem_file;
mod private_key;
mod revocation;
mod server;
#[cfg(test)]
mod test_files;
mod verifier;

pub use allow_list::AllowList;
pub use error::TlsError;
pub use identity::PeerIdentity;
pub use server::{Password, ServerFiles, ServerTls};
