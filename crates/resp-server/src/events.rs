//! Events of keys: which of them clients have asked for.

use std::sync::atomic::{AtomicU32, Ordering};

/// The class of an event: its letter in `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Generic,
    String,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
    Expired,
    Evicted,
    /// A key that was not there. Not one of those that `A` stands for.
    New,
}

/// The letters that `A` stands for.
const ALL: &str = "g$lshzxetd";
/// All letters, in the order in which they are written. Those without a class of ours are kept,
/// and never apply: `d` of modules, `m` of misses.
const LETTERS: &str = "g$lshzxetdnKEm";

impl Class {
    fn letter(self) -> char {
        match self {
            Class::Generic => 'g',
            Class::String => '$',
            Class::List => 'l',
            Class::Set => 's',
            Class::Hash => 'h',
            Class::SortedSet => 'z',
            Class::Stream => 't',
            Class::Expired => 'x',
            Class::Evicted => 'e',
            Class::New => 'n',
        }
    }
}

/// The bit of a letter.
fn bit(letter: char) -> u32 {
    LETTERS.find(letter).map_or(0, |place| 1 << place)
}

/// The bits of a setting; `None` if it has another letter.
pub(crate) fn parse(text: &str) -> Option<u32> {
    let mut bits = 0;
    for letter in text.chars() {
        bits |= match letter {
            'A' => ALL.chars().map(bit).fold(0, |all, one| all | one),
            letter if LETTERS.contains(letter) => bit(letter),
            _ => return None,
        };
    }
    Some(bits)
}

/// The setting with these bits, as the stock server writes it.
pub(crate) fn written(bits: u32) -> String {
    let all = parse("A").unwrap_or(0);
    let mut text = String::new();
    let is_all = bits & all == all;
    if is_all {
        text.push('A');
    }
    let left = if is_all { bits & !all } else { bits };
    text.extend(LETTERS.chars().filter(|letter| left & bit(*letter) != 0));
    text
}

/// The events that are published: the setting `notify-keyspace-events`. It is on a line of its own,
/// as each change reads it, and each message locks the subscribers beside it.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Events(AtomicU32);

/// How an event is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// On the channel of its key.
    pub(crate) by_key: bool,
    /// On the channel of the event.
    pub(crate) by_event: bool,
}

impl Events {
    /// Follows the setting.
    pub(crate) fn apply(&self, text: &str) {
        self.0.store(parse(text).unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether any are published.
    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether new keys are announced.
    pub(crate) fn has_new(&self) -> bool {
        self.0.load(Ordering::Relaxed) & bit(Class::New.letter()) != 0
    }

    /// How an event of a class is published.
    pub(crate) fn ways(&self, class: Class) -> Ways {
        let wanted = self.0.load(Ordering::Relaxed);
        if wanted == 0 || wanted & bit(class.letter()) == 0 {
            return Ways { by_key: false, by_event: false };
        }
        Ways { by_key: wanted & bit('K') != 0, by_event: wanted & bit('E') != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_the_stock_server_does() {
        for (given, expected) in [("KEA", "AKE"), ("", ""), ("Elg", "glE"), ("KE$n", "$nKE")] {
            assert_eq!(written(parse(given).unwrap()), expected);
        }
        assert_eq!(parse("Q"), None);
    }
}
