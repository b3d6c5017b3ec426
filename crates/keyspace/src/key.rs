//! A key as a database keeps it: a short one takes no allocation of its own.

use crate::Word;

/// Longest key that is kept in place: with its length it fits where a pointer, a length and the
/// kind of key would be.
pub(crate) const SHORT_BYTES_MAX: usize = 22;

/// A key of a database.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Short { length: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Word),
}

impl Key {
    /// As a word of its own.
    pub(crate) fn word(&self) -> Word {
        self.as_ref().into()
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        let mut bytes = [0; SHORT_BYTES_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(key);
                Key::Short { length, bytes }
            }
            _ => Key::Long(key.into()),
        }
    }
}

impl From<Key> for Word {
    fn from(key: Key) -> Word {
        match key {
            Key::Short { .. } => key.word(),
            Key::Long(word) => word,
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Key::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Key::Long(word) => word,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_length_comes_back() {
        for length in (0..100).chain([255, 256, 257, 300]) {
            let bytes: Vec<u8> = (0..length).map(|number| number as u8).collect();
            let key = Key::from(&bytes[..]);
            assert_eq!(key.as_ref(), bytes);
            assert_eq!(matches!(key, Key::Short { .. }), length <= SHORT_BYTES_MAX);
            assert_eq!(key.word()[..], bytes);
            assert_eq!(Word::from(key.clone())[..], bytes);
        }
        assert_eq!(size_of::<Key>(), 24);
    }
}
