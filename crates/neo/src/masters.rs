//! The masters of a cluster, as a node that looks for the primary one knows them.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::Message;
use crate::handling::Refusal;
use crate::messages::NotPrimaryMaster;
use crate::values::{Address, ErrorCode, NodeId, NodeType};

/// Longest pause before a master is dialled after others did not accept this node.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The masters, and which one to dial next.
#[derive(Debug)]
pub struct Masters {
    addresses: Vec<Address>,
    next: usize,
    /// Masters in a row that were dialled and gave no answer, or one that an operator has to mend.
    failures: u32,
    logged: LoggedRefusals,
}

/// The last refusal of each master that was logged, by the master's name.
#[derive(Debug, Default)]
pub struct LoggedRefusals(BTreeMap<String, String>);

impl LoggedRefusals {
    /// Logs the refusal of a master, unless it is the one that was logged last: a node that is
    /// refused tries again and again.
    pub fn log(&mut self, master: &str, code: ErrorCode, reason: &str) {
        if self.0.get(master).is_some_and(|logged| logged == reason) {
            return debug!(master, %code, reason, "still not accepted by a master");
        }
        self.0.insert(master.to_owned(), reason.to_owned());
        match code {
            ErrorCode::NotReady => {
                info!(master, %code, reason, "not accepted by a master, trying again");
            }
            _ => warn!(master, %code, reason, "refused by a master, trying again; check the \
                names of the clusters and the addresses"),
        }
    }
}

impl Masters {
    /// The masters at these addresses.
    pub fn new(addresses: Vec<Address>) -> Masters {
        Masters { addresses, next: 0, failures: 0, logged: LoggedRefusals::default() }
    }

    /// All that are known.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The master to dial now; the next time it is another one.
    pub fn take(&mut self) -> Option<Address> {
        let address = self.addresses.get(self.next % self.addresses.len().max(1)).cloned();
        self.next = self.next.wrapping_add(1);
        // Until it says something.
        self.failures = self.failures.saturating_add(1);
        address
    }

    /// Notes a master that another one tells of.
    pub fn add(&mut self, address: &Address) {
        if !self.addresses.contains(address) {
            self.addresses.push(address.clone());
        }
    }

    /// Notes that a master is removed from the cluster. The last one stays.
    pub fn remove(&mut self, address: &Address) {
        if self.addresses.len() > 1 {
            self.addresses.retain(|known| known != address);
        }
    }

    /// Notes what a secondary master says: the masters that it knows, and which one is primary.
    pub fn note(&mut self, message: &NotPrimaryMaster) {
        self.failures = 0;
        message.masters.iter().for_each(|address| self.add(address));
        // The index counts the masters of the message, which are in an order of their own.
        let primary = message.primary.and_then(|index| message.masters.get(index as usize));
        if let Some(primary) = primary {
            self.prefer(primary);
        }
    }

    /// How long to wait before the next master is dialled: `least`, and longer the more masters in
    /// a row were not there, ended the connection (as with wrong certificates), or refused this
    /// node.
    pub fn pause(&self, least: Duration) -> Duration {
        let longer = least.saturating_mul(1 << self.failures.min(16));
        longer.min(PAUSE_MAX.max(least))
    }

    /// Notes the refusal of a master. The same one is logged once.
    pub fn refused(&mut self, master: &str, code: ErrorCode, reason: &str) {
        if code == ErrorCode::NotReady {
            // That passes by itself.
            self.failures = 0;
        }
        self.logged.log(master, code, reason);
    }

    /// Notes that a master has accepted this node.
    pub fn accepted(&mut self) {
        (self.failures, self.logged) = Default::default();
    }

    /// Dials this one next.
    pub fn prefer(&mut self, address: &Address) {
        if let Some(place) = self.addresses.iter().position(|known| known == address) {
            self.next = place;
        }
    }
}

/// What a master says to the identification of a node that looks for the primary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// It is the primary master.
    Primary {
        /// Its id.
        id: Option<NodeId>,
        /// The id of the node that it has accepted.
        your_id: NodeId,
    },
    /// It does not accept the node. The connection is closed, and another master is tried.
    Other,
}

impl Candidate {
    /// Reads the message of a master, whose name is for a log line. Notes the masters that it tells
    /// of.
    pub fn read(
        masters: &mut Masters,
        master: &str,
        message: &Message<'_>,
    ) -> Result<Candidate, Refusal> {
        match message {
            Message::AcceptIdentification(accepted) => {
                let your_id = accepted.your_id.filter(|_| accepted.node_type == NodeType::Master);
                let your_id = your_id.ok_or_else(|| {
                    Refusal::protocol("the identification was accepted by no master")
                })?;
                masters.accepted();
                Ok(Candidate::Primary { id: accepted.id, your_id })
            }
            Message::NotPrimaryMaster(message) => {
                masters.note(message);
                Ok(Candidate::Other)
            }
            Message::Error(error) => {
                masters.refused(master, error.code, error.for_log());
                Ok(Candidate::Other)
            }
            other => Err(Refusal::unexpected(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address { host: "127.0.0.1".to_owned(), port }
    }

    #[test]
    fn masters_are_dialled_in_turn_and_the_primary_next() {
        let mut masters = Masters::new(vec![address(1), address(2)]);
        assert_eq!([masters.take(), masters.take()], [Some(address(1)), Some(address(2))]);
        assert_eq!(masters.take(), Some(address(1)));
        let known = vec![address(3), address(2), address(1)];
        masters.note(&NotPrimaryMaster { primary: Some(0), masters: known.clone() });
        assert_eq!(masters.take(), Some(address(3)));
        masters.note(&NotPrimaryMaster { primary: Some(1), masters: known });
        assert_eq!(masters.take(), Some(address(2)));
        masters.note(&NotPrimaryMaster { primary: None, masters: Vec::new() });
        assert_eq!(masters.take(), Some(address(3)));
        masters.prefer(&address(3));
        assert_eq!([masters.take(), masters.take()], [Some(address(3)), Some(address(1))]);
        assert_eq!(Masters::new(Vec::new()).take(), None);
    }

    #[test]
    fn masters_that_say_nothing_are_dialled_less_and_less_often() {
        let mut masters = Masters::new(vec![address(1), address(2)]);
        let least = Duration::from_millis(50);
        let dial = |masters: &mut Masters| {
            masters.take();
            masters.pause(least).as_millis()
        };
        let pauses = [(); 6].map(|()| dial(&mut masters));
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        masters.note(&NotPrimaryMaster { primary: None, masters: Vec::new() });
        assert_eq!(masters.pause(least).as_millis(), 50);
        assert_eq!(dial(&mut masters), 100);
        masters.accepted();
        assert_eq!(masters.pause(least).as_millis(), 50, "the primary master was lost");
    }

    #[test]
    fn masters_that_refuse_a_node_are_dialled_less_and_less_often() {
        let mut masters = Masters::new(vec![address(1)]);
        let least = Duration::from_millis(50);
        let read = |masters: &mut Masters, code| {
            masters.take();
            let error = crate::messages::Error { code, message: "no" };
            let read = Candidate::read(masters, "M", &error.into());
            assert_eq!(read.unwrap(), Candidate::Other);
            masters.pause(least).as_millis()
        };
        let wrong = ErrorCode::ProtocolError;
        let pauses = [(); 6].map(|()| read(&mut masters, wrong));
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(read(&mut masters, ErrorCode::NotReady), 50, "that passes by itself");
        assert_eq!(read(&mut masters, wrong), 100);
        assert_eq!(masters.pause(Duration::from_secs(2)), Duration::from_secs(2));
    }
}
