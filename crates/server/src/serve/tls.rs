//! TLS of a configuration: read at the start, and again on SIGUSR2.

use std::sync::Arc;

use anyhow::{Context, Result};
use tracing::{info, warn};
use zodium_configuration::{KeyPassword, TlsOptions};
use zodium_tls::{CertificateFiles, Password, ServerFiles, ServerTls};

/// Reads the files that the options name.
pub(crate) fn load(options: Option<&TlsOptions>) -> Result<Option<Arc<ServerTls>>> {
    let Some(options) = options else { return Ok(None) };
    let files = ServerFiles { own: own_files(options), authenticate: options.authenticate.clone() };
    Ok(Some(Arc::new(ServerTls::load(files).context("cannot set up TLS")?)))
}

/// Where the server's certificate and its key are.
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

/// Reads the files again, for connections that come from now on.
pub(crate) fn reload(tls: &ServerTls) {
    match tls.reload() {
        Ok(()) => info!("SIGUSR2, read the certificates anew"),
        Err(error) => warn!(%error, "SIGUSR2, but TLS goes on with the certificates it has"),
    }
}
