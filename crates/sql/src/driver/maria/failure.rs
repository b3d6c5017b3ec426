//! Which errors of a server pass, so that a transaction is worth another try.

use mysql::{DriverError, Error as ServerError};

use super::tls;
use crate::driver::Error;

/// Another transaction was in the way: a deadlock, or in Galera, another node's commit.
const DEADLOCK: u16 = 1213;
const LOCK_WAIT: u16 = 1205;
/// The server does not serve now: it stops, starts, or has lost its cluster.
const UNKNOWN_COMMAND: u16 = 1047;
/// The server has no connection left, for this user or for all.
const NO_CONNECTION: [u16; 3] = [1040, 1203, 1226];
/// The COMMIT has failed: in Galera, also because the node lost its cluster meanwhile.
const COMMIT_FAILED: u16 = 1180;
const SHUTDOWN: u16 = 1053;
const INTERRUPTED: u16 = 1317;
const KILLED: u16 = 1927;
const GONE: [u16; 2] = [2006, 2013];

/// What to do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Fail: another try would fail too.
    Lasting,
    /// Run the transaction again on the same connection.
    Again,
    /// The same, when another session has ended, which may take its time.
    Locked,
    /// Connect again, perhaps to another node, and run the transaction again.
    Lost,
}

/// Whether an error may pass.
pub(in crate::driver) fn may_pass(error: &Error) -> bool {
    of(error) != Failure::Lasting
}

/// The error of a node that is not part of its cluster.
pub(super) fn not_ready() -> Error {
    unusable("the node has not joined its cluster")
}

/// The error of another server that lacks commits.
pub(super) fn behind() -> Error {
    unusable("the host does not have all that was committed; is it a replica that lags?")
}

/// The error of a replica that takes no writes.
pub(super) fn read_only() -> Error {
    unusable("the host is read-only; is it a replica?")
}

fn unusable(message: &str) -> Error {
    let message = message.to_owned();
    let error = mysql::MySqlError { state: "08S01".to_owned(), message, code: UNKNOWN_COMMAND };
    ServerError::MySqlError(error).into()
}

/// What to do after an error.
pub(super) fn of(error: &Error) -> Failure {
    let Error::Server(error) = error else { return Failure::Lasting };
    if tls::is_refusal(error) {
        return Failure::Lasting;
    }
    match &**error {
        ServerError::MySqlError(error) => match error.code {
            DEADLOCK => Failure::Again,
            LOCK_WAIT => Failure::Locked,
            UNKNOWN_COMMAND | COMMIT_FAILED | SHUTDOWN | INTERRUPTED | KILLED => Failure::Lost,
            code if NO_CONNECTION.contains(&code) || GONE.contains(&code) => Failure::Lost,
            _ => Failure::Lasting,
        },
        ServerError::IoError(_) | ServerError::CodecError(_) => Failure::Lost,
        ServerError::DriverError(
            DriverError::ConnectTimeout
            | DriverError::CouldNotConnect(_)
            | DriverError::UnexpectedPacket
            | DriverError::SetupError
            | DriverError::Timeout,
        ) => Failure::Lost,
        _ => Failure::Lasting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16) -> Failure {
        let error = mysql::MySqlError { state: String::new(), message: String::new(), code };
        of(&ServerError::MySqlError(error).into())
    }

    #[test]
    fn what_passes_is_tried_again_and_what_lasts_is_not() {
        assert_eq!((failure(1213), failure(1205)), (Failure::Again, Failure::Locked));
        for code in [1047, 1040, 1203, 1226, 1180, 1053, 1317, 1927, 2006, 2013] {
            assert_eq!(failure(code), Failure::Lost, "{code}");
        }
        // Two rows with one key, a wrong password, a full disk, an error of the syntax.
        for code in [1062, 1045, 1021, 1064] {
            assert_eq!(failure(code), Failure::Lasting, "{code}");
        }
        assert_eq!(of(&not_ready()), Failure::Lost);
        assert_eq!(of(&Error::TakenOver), Failure::Lasting);
    }
}
