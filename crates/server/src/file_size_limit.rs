//! The limit on the size of a file, `ulimit -f`.
//!
//! Key decision: SIGXFSZ, which would end the process without a log line, gets a handler. The write
//! over the limit then fails with an error, which is handled as that of a full disk.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write over the limit fail, instead of ending the process.
pub(crate) fn make_an_error() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    // The handler stays after its receiver and the runtime.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
