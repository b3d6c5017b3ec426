//! Handles SIGINT and SIGTERM while measuring. The servers must be stopped and the files removed,
//! so a signal becomes an error like any other. What takes long looks for it now and then. A second
//! signal does not wait for that: it kills the servers, and leaves files behind.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal as Number, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The status of a process that a signal has ended, as shells show it, less the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

/// Tells whether the user wants to stop.
#[derive(Debug)]
pub(crate) struct Interrupt {
    /// Disconnected by the first signal.
    received: Receiver<Infallible>,
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
                either(&mut interrupt, &mut terminate).await;
                // From now on each look finds the sender gone.
                drop(sender);
                let second = either(&mut interrupt, &mut terminate).await;
                eprintln!("zodium-bench: ended at once; files are left behind");
                kill_children();
                std::process::exit(ENDED_BY_SIGNAL + second.as_raw_value());
            });
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
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => bail!("interrupted"),
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

/// Waits for one of the two signals.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    }
}

/// Kills the processes that the threads of this one have started.
fn kill_children() {
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let numbers = children.split_whitespace().filter_map(|number| number.parse().ok());
        for child in numbers.filter_map(Pid::from_raw) {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(child, Number::KILL);
        }
    }
}
