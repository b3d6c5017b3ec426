//! RESP, for Redis and Valkey clients: its addresses, its password, and its server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tracing::{info, warn};
use zodium_configuration::{RespSync, ServerOptions};
use zodium_disk::RealDisk;
use zodium_net::{Bound, Listener, Protocol};
use zodium_resp_server::{KeeperOptions, Options, Server};
use zodium_tls::ServerTls;
use zodium_types::Address;

use super::signals::{Ending, Signals};
use super::{ending, listening, workers};
use crate::background::Background;
use crate::supervisor;
use crate::valkey_conf::ValkeyConf;

/// The place of RESP among the protocols of a server that serves ZEO too.
pub(crate) const PROTOCOL: Protocol = Protocol(1);
/// The file of the password, for messages.
pub(crate) const PASSWORD_FILE: &str = "the file of the RESP password";
/// Interval between two messages that keys are being read.
const READING_INTERVAL: Duration = Duration::from_secs(5);

/// A RESP server whose addresses are bound.
pub(crate) struct Resp {
    pub(crate) server: Arc<Server>,
    bound: Vec<Bound>,
    has_password: bool,
}

/// Binds the addresses of RESP; `None` if there are none. Must be called within a tokio runtime.
///
/// `conf` has been applied to the options. If it `is_alone` in its process, clients may end that.
pub(crate) async fn bind(
    options: &ServerOptions,
    conf: Option<&ValkeyConf>,
    is_alone: bool,
) -> Result<Option<Resp>> {
    let bound = listening::bind_each(&options.resp_addresses).await?;
    if bound.is_empty() {
        if options.resp_file.is_some() || options.resp_password_file.is_some() {
            warn!("there is no address for RESP, so its file and password are not used");
        }
        return Ok(None);
    }
    if options.resp_sync == Some(RespSync::Always) && options.resp_file.is_none() {
        warn!(
            "changes of keys are to be synced always, but there is no file of keys: they are in \
               memory only"
        );
    }
    let password = match &options.resp_password_file {
        Some(path) => Some(password(path)?),
        None => conf.and_then(ValkeyConf::password),
    };
    let has_password = password.is_some();
    let ports = bound.iter().find_map(|bound| match bound.address() {
        Address::Tcp { port, .. } => Some(*port),
        Address::Unix(_) => None,
    });
    let server = Server::new(Options {
        workers: workers::count(options),
        password,
        port: ports.unwrap_or(0),
        may_shut_down: is_alone,
        config_file: conf.map(|conf| conf.path().to_path_buf()),
    });
    if let Some(conf) = conf {
        conf.configure(&server, options)?;
    }
    Ok(Some(Resp { server: Arc::new(server), bound, has_password }))
}

/// Has the file of the password read again. If it cannot be read, the password stays.
pub(crate) fn reload_password(background: &Background, server: &Arc<Server>, path: &Path) {
    let (server, path) = (Arc::clone(server), path.to_owned());
    background.run(move || read_password_again(&server, &path));
}

fn read_password_again(server: &Server, path: &Path) {
    if path.exists() && !path.is_file() {
        // A pipe was read at the start. To read it again could wait for ever.
        return;
    }
    match password(path).map(|password| server.set_password(password)) {
        Ok(true) => {
            info!("SIGUSR2: read the new password of RESP; clients that gave the old one stay");
        }
        Ok(false) => {}
        Err(error) => warn!(
            error = format!("{error:#}"),
            "SIGUSR2: the password of RESP cannot be read; the old one stays in use"
        ),
    }
}

/// Reads the keys of a server from its file, if it has one, and keeps them there from now on.
/// Returns how the server ends, if a signal ended it before all were read.
pub(crate) async fn keep(
    server: &Arc<Server>,
    options: &ServerOptions,
    signals: &mut Signals,
    reload: impl Fn(),
) -> Result<Option<Ending>> {
    let Some(path) = &options.resp_file else { return Ok(None) };
    let sync = options.resp_sync.unwrap_or(RespSync::EverySecond).name().to_owned();
    let keeper = KeeperOptions { disk: Arc::new(RealDisk), path: path.clone(), sync };
    let server = Arc::clone(server);
    let reading = tokio::task::spawn_blocking(move || server.keep(&keeper));
    let report = tokio::select! {
        report = reading => report??,
        ending = ending(signals, reload, || ()) => return Ok(Some(ending)),
        never = tell_of_reading(path) => match never {},
    };
    let (keys, bytes, seconds) = (report.keys, report.bytes, report.time.as_secs_f64());
    info!("read {keys} keys from {} ({bytes} bytes) in {seconds:.3} s", path.display());
    Ok(None)
}

/// Tells the log and the service manager again and again that keys are being read.
async fn tell_of_reading(path: &Path) -> Infallible {
    loop {
        tokio::time::sleep(READING_INTERVAL).await;
        info!("still reading the keys in {}", path.display());
        supervisor::starting("reading keys", READING_INTERVAL * 6);
    }
}

impl Resp {
    /// Listens on all addresses, for connections of a protocol, with TLS on all or none.
    pub(crate) fn listen(
        self,
        tls: Option<&Arc<ServerTls>>,
        protocol: Protocol,
    ) -> Result<Vec<Listener>> {
        let listeners = listening::listen(self.bound, tls)?;
        for listener in &listeners {
            info!(address = %listener.address(), tls = listener.has_tls(), "listening for RESP");
        }
        if tls.is_none() && !self.has_password {
            warn_of_exposure(&listeners);
        }
        Ok(listeners.into_iter().map(|listener| listener.with_protocol(protocol)).collect())
    }
}

/// Without a password and TLS, each client that can connect can change everything.
fn warn_of_exposure(listeners: &[Listener]) {
    let addresses = listeners.iter().map(Listener::address);
    let exposed = addresses.filter(|address| super::announce::is_reachable(address));
    let addresses: Vec<String> = exposed.map(Address::to_string).collect();
    if !addresses.is_empty() {
        let addresses = addresses.join(", ");
        warn!(
            addresses,
            "listening for RESP without a password beyond this machine: every host that can \
             connect can read and change all keys. Set --resp-password-file, or listen on a \
             loopback address"
        );
    }
}

/// The first line of a file.
pub(crate) fn password(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read the password in {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        bail!("the first line of {} is empty: write the password there", path.display());
    }
    Ok(line.to_owned())
}
