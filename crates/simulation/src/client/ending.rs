//! Why a client's connection has ended: the server needs a reason.

use std::time::Duration;

use super::Client;
use crate::pipe::Pipe;
use crate::plan::{EXPIRED, Plan};

impl Client {
    /// Why its connection is over.
    ///
    /// # Errors
    /// When the server has ended it without a reason.
    pub(crate) fn reason_of_end(&self, plan: &Plan, now: Duration) -> Result<&'static str, String> {
        if !self.pipe.as_ref().is_some_and(Pipe::is_ended_by_server) {
            return Ok("lost");
        }
        let begun = self.doing.as_ref().and_then(|doing| doing.begun);
        let open = begun.map_or(Duration::ZERO, |begun| now.saturating_sub(begun));
        let reason = plan.reason_of_end()?;
        let is_early =
            reason == EXPIRED && plan.transaction_timeout.is_some_and(|time| open < time);
        match is_early {
            false => Ok(reason),
            true => Err(format!(
                "the server ends its connection, with a transaction open for {open:?}: {}",
                self.describe()
            )),
        }
    }
}
