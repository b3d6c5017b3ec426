//! Arguments of commands.

use zodium_neo::{ClusterState, NodeId, NodeType, Partition};
use zodium_types::{CalendarTime, Tid};

/// Times are before the year 2540: nanoseconds since 1970 have 64 bits.
const SECONDS_MAX: f64 = 18_000_000_000.0;

/// A storage, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    All,
    One(NodeId),
}

/// An argument of `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// A partition, or all of them, and the storage that is right.
    Cells(Option<Partition>, Option<NodeId>),
    /// A bound of the transactions.
    Bound(Tid),
}

/// Reads the id of a node, such as S1.
pub(super) fn node(text: &str) -> Result<NodeId, String> {
    let mut letters = text.chars();
    let kind = match letters.next() {
        Some('M') => Some(NodeType::Master),
        Some('S') => Some(NodeType::Storage),
        Some('C') => Some(NodeType::Client),
        Some('A') => Some(NodeType::Admin),
        _ => None,
    };
    let number = digits(letters.as_str());
    let id = kind.zip(number).and_then(|(kind, number)| NodeId::of(kind, number));
    id.ok_or_else(|| "give the id of a node, such as S1 or M2".to_owned())
}

pub(super) fn nodes(text: &str) -> Result<Nodes, String> {
    if text == "all" { Ok(Nodes::All) } else { node(text).map(Nodes::One) }
}

/// Reads a number without sign.
fn digits(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0 or 1".to_owned()),
    }
}

pub(super) fn kind(text: &str) -> Result<NodeType, String> {
    let found = NodeType::ALL.iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| "give master, storage, client or admin".to_owned())
}

pub(super) fn cluster_state(text: &str) -> Result<ClusterState, String> {
    let mut all = ClusterState::ALL.iter();
    let found = all.find(|state| state.name().eq_ignore_ascii_case(text)).copied();
    let advice = "give VERIFYING, STOPPING, STARTING_BACKUP or STOPPING_BACKUP";
    found.ok_or_else(|| advice.to_owned())
}

/// Reads a transaction: `tid:` and a number as Python writes them, or a time.
pub(super) fn tid(text: &str) -> Result<Tid, String> {
    let advice = "give tid:NUMBER (decimal, or 0x...), or a Unix time in seconds";
    let tid = match text.get(..4) {
        Some(head) if head.eq_ignore_ascii_case("tid:") => number(&text[4..]).map(Tid),
        _ => text.parse().ok().and_then(tid_of_time),
    };
    tid.ok_or_else(|| advice.to_owned())
}

fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let radixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = radixes
        .iter()
        .find_map(|(prefix, radix)| lower.strip_prefix(prefix).map(|digits| (digits, *radix)));
    let (digits, radix) = prefixed.unwrap_or((&lower, 10));
    u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

/// The transaction of a Unix time, with the rounding of Python's floats.
fn tid_of_time(seconds: f64) -> Option<Tid> {
    if !(0.0..SECONDS_MAX).contains(&seconds) {
        return None;
    }
    let whole = seconds.trunc() as u64;
    let minute = CalendarTime::from_unix_nanos(whole / 60 * 60 * 1_000_000_000).to_tid();
    let in_minute = (whole % 60) as f64 + (seconds - seconds.trunc());
    let steps = in_minute / (60.0 / 4_294_967_296.0);
    Some(Tid(minute.0 | (steps as u64).min(u32::MAX.into())))
}

pub(super) fn check(text: &str) -> Result<Check, String> {
    let cells =
        text.split_once(':').filter(|(partition, _)| !partition.eq_ignore_ascii_case("tid"));
    let Some((partition, storage)) = cells else { return tid(text).map(Check::Bound) };
    let partition = match partition {
        "" => None,
        text => Some(digits(text).map(Partition).ok_or("give the number of a partition")?),
    };
    let storage = if storage.is_empty() { None } else { Some(node(storage)?) };
    Ok(Check::Cells(partition, storage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(number: u32) -> NodeId {
        NodeId::of(NodeType::Storage, number).unwrap()
    }

    #[test]
    fn nodes_are_a_letter_and_a_number() {
        assert_eq!(node("S12"), Ok(storage(12)));
        assert_eq!(node("M1").unwrap().value(), -268_435_455);
        for wrong in ["", "S", "S0", "s1", "X1", "S-1", "S+1", "S16777216", "all"] {
            assert!(node(wrong).is_err(), "{wrong}");
        }
        assert_eq!((nodes("all"), nodes("S1")), (Ok(Nodes::All), Ok(Nodes::One(storage(1)))));
    }

    #[test]
    fn transactions_are_those_of_neo() {
        // What NEO/py makes of them.
        for (text, expected) in [
            ("tid:257684787499560686", 0x0393_7af2_eeee_eeee),
            ("TID:0x3937af2eeeeeeee", 0x0393_7af2_eeee_eeee),
            ("tid:0o17", 15),
            ("1325421296", 0x0393_7af2_eeee_eeee),
            ("1325421296.5", 0x0393_7af2_f111_1111),
            ("1.1e9", 0x0359_1375_5555_5555),
            ("1325421296.123456", 0x0393_7af2_ef75_c7bb),
            ("0", 0x023c_2b00_0000_0000),
            ("59.999999", 0x023c_2b00_ffff_ffb8),
        ] {
            assert_eq!(tid(text), Ok(Tid(expected)), "{text}");
        }
        for wrong in ["", "tid:", "tid:-1", "tid:+1", "tid:0x1g", "-1", "nan", "inf", "1e11", "é"]
        {
            assert!(tid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn checks_are_cells_or_bounds() {
        let bound = Check::Bound(Tid(15));
        for (text, expected) in [
            ("0:S1", Check::Cells(Some(Partition(0)), Some(storage(1)))),
            (":", Check::Cells(None, None)),
            (":S2", Check::Cells(None, Some(storage(2)))),
            ("12:", Check::Cells(Some(Partition(12)), None)),
            ("tid:15", bound),
        ] {
            assert_eq!(check(text), Ok(expected), "{text}");
        }
        for wrong in ["a:", "0:x", "-1:S1", "0:S1:S2", ""] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn states_and_kinds_are_in_any_case() {
        assert_eq!(cluster_state("stopping_Backup"), Ok(ClusterState::StoppingBackup));
        assert!(cluster_state("UP").is_err());
        assert_eq!(kind("storage"), Ok(NodeType::Storage));
        assert!(kind("disk").is_err());
        assert_eq!((flag("0"), flag("1")), (Ok(false), Ok(true)));
        assert!(flag("").is_err());
    }
}
