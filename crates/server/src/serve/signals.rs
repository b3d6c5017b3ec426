//! The signals that a server is told things with.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Signals that were asked for: from then on they no longer end the process by themselves. That
/// also holds for process 1 of a container, for which the system ignores all others.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    mend: Signal,
    user: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To end.
    End(Ending),
    /// SIGUSR2: to open the log files anew, which were moved away, and to read the certificates
    /// again, which were renewed.
    Reload,
    /// SIGUSR1: to take commits again now, of which a failed write keeps a storage.
    Reopen,
}

/// Why a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// SIGTERM or SIGINT: it shall stop.
    Stop,
    /// SIGHUP: it shall be started anew by whoever watches it, who is told so by a failure. As
    /// the stock server does.
    Restart,
}

impl Signals {
    /// Within a tokio runtime.
    pub(crate) fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            mend: signal(SignalKind::user_defined1())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => {
                info!("SIGTERM, stopping");
                Wish::End(Ending::Stop)
            }
            _ = self.interrupt.recv() => {
                info!("SIGINT, stopping");
                Wish::End(Ending::Stop)
            }
            _ = self.hang_up.recv() => {
                info!("SIGHUP, stopping to be started anew");
                Wish::End(Ending::Restart)
            }
            _ = self.user.recv() => Wish::Reload,
            _ = self.mend.recv() => Wish::Reopen,
        }
    }
}
