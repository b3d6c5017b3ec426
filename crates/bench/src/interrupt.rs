//! Handles SIGINT and SIGTERM while measuring. The servers must be stopped and the files removed,
//! so a signal becomes an error like any other.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Tells whether the user wants to stop.
#[derive(Debug)]
pub(crate) struct Interrupt {
    received: Receiver<()>,
}

impl Interrupt {
    /// From now on the signals no longer end the process.
    pub(crate) fn listen() -> Result<Interrupt> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, received) = channel();
        let (mut interrupt, mut terminate) = {
            let _within = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => (),
                    _ = terminate.recv() => (),
                }
            });
            // Fails only if the receiver is gone, when everything is over.
            let _ = sender.send(());
        })?;
        Ok(Interrupt { received })
    }

    /// Fails if a signal has arrived.
    pub(crate) fn check(&self) -> Result<()> {
        self.sleep(Duration::ZERO)
    }

    /// Sleeps, or fails at once when a signal arrives.
    pub(crate) fn sleep(&self, duration: Duration) -> Result<()> {
        match self.received.recv_timeout(duration) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!("interrupted"),
        }
    }

    /// Sleeps, and again while nothing has happened: a slow server, or one on a busy machine, gets
    /// the time that it needs.
    pub(crate) fn sleep_until(
        &self,
        duration: Duration,
        happened: impl Fn() -> bool,
    ) -> Result<()> {
        self.sleep(duration)?;
        while !happened() {
            self.sleep(duration)?;
        }
        Ok(())
    }
}
