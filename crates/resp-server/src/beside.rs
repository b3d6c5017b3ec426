//! What a server has for the storages that it is beside.

use std::sync::{Arc, OnceLock};

use crate::client::Client;
use crate::fail::Fail;
use crate::parked::Parked;
use crate::storages::{PREFIX, Rights, Storages};
use crate::ties::Ties;

/// The storages, the keys that are tied to their objects, and commands for their transactions.
#[derive(Default)]
pub(crate) struct Beside {
    /// Not set if the server is alone.
    storages: OnceLock<Arc<dyn Storages>>,
    pub(crate) ties: Ties,
    pub(crate) parked: Parked,
}

impl Beside {
    /// Sets the storages, once.
    pub(crate) fn attach(&self, storages: Arc<dyn Storages>) {
        if self.storages.set(storages).is_err() {
            tracing::error!("the RESP server has its storages already");
        }
    }

    /// Whether there are storages.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.storages.get().is_some()
    }

    /// The storages.
    pub(crate) fn storages(&self) -> Result<&dyn Storages, Fail> {
        self.storages.get().map(|storages| &**storages).ok_or(Fail::fixed(
            "ERR this server has no storage: its objects are known to 'zodium serve --resp' only",
        ))
    }

    /// The storage of a name, if these rights suffice. The answer does not tell a storage that a
    /// peer may not use from one that is not there.
    pub(crate) fn admitted(&self, name: &[u8], rights: Rights) -> Result<usize, Fail> {
        let storages = self.storages()?;
        let found = std::str::from_utf8(name).ok().and_then(|name| storages.find(name));
        let admits = |storage: &usize| match rights {
            Rights::Of(peer) => storages.admits(*storage, peer),
            Rights::All => true,
        };
        found.filter(admits).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Fail::text(format!("NOPERM there is no storage '{name}' for this client"))
        })
    }

    /// Whether messages of a channel come from a storage.
    pub(crate) fn is_stream(&self, channel: &[u8]) -> bool {
        channel.starts_with(PREFIX) && self.is_attached()
    }

    /// Checks that a client may subscribe to a channel.
    pub(crate) fn check_channel(&self, client: &Client, channel: &[u8]) -> Result<(), Fail> {
        match self.is_stream(channel) {
            true => self.admitted(&channel[PREFIX.len()..], client.rights()).map(drop),
            false => Ok(()),
        }
    }

    /// Whether a client may see messages of a storage.
    pub(crate) fn may_see(&self, client: &Client, storage: usize) -> bool {
        self.storages().is_ok_and(|storages| storages.admits(storage, client.identity()))
    }
}
