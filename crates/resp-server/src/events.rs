//! Events of keys, which are published to clients that asked for them.

use std::sync::atomic::Ordering;

use crate::Server;

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

impl Server {
    /// Whether new keys are announced.
    pub(crate) fn announces_new(&self) -> bool {
        self.settings.events.load(Ordering::Relaxed) & bit(Class::New.letter()) != 0
    }

    /// Publishes an event of a key, if it is asked for.
    pub(crate) fn announce(&self, database: usize, key: &[u8], class: Class, event: &str) {
        let wanted = self.settings.events.load(Ordering::Relaxed);
        if wanted == 0 || wanted & bit(class.letter()) == 0 {
            return;
        }
        if wanted & bit('K') != 0 {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish(&channel, event.as_bytes());
        }
        if wanted & bit('E') != 0 {
            self.publish(format!("__keyevent@{database}__:{event}").as_bytes(), key);
        }
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
