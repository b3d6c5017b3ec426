//! The signals that a server handles.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// The signals that are handled, and therefore do not end the process by themselves. For process 1
/// of a container the system ignores all others.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    mend: Signal,
    user: Signal,
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// End the server.
    End(Ending),
    /// SIGUSR2: reopen the log files, which were moved, and read the certificates again, which
    /// were renewed.
    Reload,
    /// SIGUSR1: reopen the storages that refuse commits after a failed write.
    Reopen,
}

/// Why a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: stop with an error code, so that a supervisor restarts the server, as with the
    /// stock server.
    Restart,
}

impl Ending {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Ending::Stop => ExitCode::SUCCESS,
            Ending::Restart => ExitCode::FAILURE,
        }
    }
}

impl Signals {
    /// Must be called within a tokio runtime.
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
                info!("SIGHUP: stopping for a restart");
                Wish::End(Ending::Restart)
            }
            _ = self.user.recv() => Wish::Reload,
            _ = self.mend.recv() => Wish::Reopen,
        }
    }
}
