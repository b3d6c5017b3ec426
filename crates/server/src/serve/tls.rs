//! Loads the configured certificates: at the start, and again on SIGUSR2.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tracing::{info, warn};
use zodium_configuration::TlsOptions;
use zodium_tls::{ServerFiles, ServerTls};

use crate::own_certificate::own_files;

/// Interval between two warnings that the certificate will expire.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks that not only some options of TLS were given, without a file that has the others.
pub(crate) fn check(options: Option<&TlsOptions>) -> Result<(), &'static str> {
    let Some(TlsOptions { certificate, authenticate, .. }) = options else { return Ok(()) };
    match [certificate, authenticate].iter().any(|path| path.as_os_str().is_empty()) {
        true => Err("TLS needs both --ssl-certificate and --ssl-authenticate"),
        false => Ok(()),
    }
}

/// Reads the files that the options name. Warns each day from then on while the certificate is
/// about to expire. Must be called within a tokio runtime.
pub(crate) fn load(options: Option<&TlsOptions>) -> Result<Option<Arc<ServerTls>>> {
    let Some(options) = options else { return Ok(None) };
    let files = ServerFiles { own: own_files(options), authenticate: options.authenticate.clone() };
    let tls = Arc::new(ServerTls::load(files).context("cannot set up TLS")?);
    tokio::spawn(warn_daily(Arc::clone(&tls)));
    Ok(Some(tls))
}

/// Warns each day while the certificate is about to expire.
pub(crate) async fn warn_daily(tls: Arc<ServerTls>) {
    loop {
        tokio::time::sleep(WARNING_INTERVAL).await;
        tls.warn_of_expiry();
    }
}

/// Reads the files again, for new connections.
pub(crate) fn reload(tls: &ServerTls) {
    match tls.reload() {
        Ok(()) => info!("SIGUSR2: read the certificates again"),
        Err(error) => {
            warn!(%error, "SIGUSR2: the certificates cannot be read; the old ones stay in use")
        }
    }
}
