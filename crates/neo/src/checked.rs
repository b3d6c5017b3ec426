//! What our storages tell our master of a check, for which NEO has no message: that copies agree.
//!
//! A storage says when it identifies itself that it can ([`TELLS_CHECKS`]), and does when the
//! master asks for it.

use zodium_types::Tid;

use crate::messages::NotifyMonitorInformation;
use crate::values::{Extra, Partition, Value};

/// The property of a storage that can tell how checks end, and of a master that asks for it.
pub const TELLS_CHECKS: &str = "checks";
/// The part with what was compared.
const CHECKED: &str = "checked";

/// Copies of a partition that were compared, and are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The partition.
    pub partition: Partition,
    /// The first transaction.
    pub min_tid: Tid,
    /// The last transaction.
    pub max_tid: Tid,
    /// How many copies were compared.
    pub copies: u32,
}

impl Checked {
    /// The message for the master.
    pub fn message(self) -> NotifyMonitorInformation<'static> {
        let Checked { partition, min_tid, max_tid, copies } = self;
        let tids = [min_tid, max_tid].map(|tid| tid.0.cast_signed());
        let parts = [partition.0.into(), tids[0], tids[1], copies.into()];
        let value = Value::Array(parts.map(Value::Int).to_vec());
        NotifyMonitorInformation { information: Extra::from_iter([(CHECKED, value)]) }
    }

    /// What a storage tells; `None` if it is something else.
    pub fn read(message: &NotifyMonitorInformation<'_>) -> Option<Checked> {
        let parts = message.information.get(&CHECKED)?.as_array()?;
        let &[Value::Int(partition), Value::Int(min_tid), Value::Int(max_tid), Value::Int(copies)] =
            parts
        else {
            return None;
        };
        let [min_tid, max_tid] = [min_tid, max_tid].map(|tid| Tid(tid.cast_unsigned()));
        let partition = Partition(u32::try_from(partition).ok()?);
        Some(Checked { partition, min_tid, max_tid, copies: u32::try_from(copies).ok()? })
    }
}

/// Asks a storage to tell how checks end, those that are ordered afterwards.
pub fn ask_checks() -> NotifyMonitorInformation<'static> {
    NotifyMonitorInformation { information: Extra::from_iter([(TELLS_CHECKS, Value::Bool(true))]) }
}

/// Whether a node has said that it tells how checks end, or asks for it.
pub fn has_checks(extra: &Extra<'_>) -> bool {
    extra.get(&TELLS_CHECKS).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compared_arrives_as_it_was_told() {
        for max_tid in [Tid(7), Tid::MAX] {
            let (partition, min_tid) = (Partition(3), Tid::ZERO);
            let checked = Checked { partition, min_tid, max_tid, copies: 2 };
            assert_eq!(Checked::read(&checked.message()), Some(checked));
        }
        assert_eq!(Checked::read(&ask_checks()), None);
        assert!(has_checks(&ask_checks().information));
    }
}
