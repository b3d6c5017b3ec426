//! What objects look like where they are stored: encrypted if the repository has a key, and with a
//! checksum in any case.
//!
//! Key decision: each object is encrypted with a key of its own, which its name gives. So no two
//! contents share a key and a nonce, and an object put in the place of another is noticed. Names
//! are hashed with a key too: equal contents still have one name, and no content can be guessed.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use super::hash::Hash;
use crate::BackupError;

/// Bytes of a key, and of the length in front of what is encrypted.
const KEY_BYTES: usize = 32;
const LENGTH_BYTES: usize = 8;
const SUM_BYTES: usize = 4;
/// What keys are derived for.
const SALT: &[u8] = b"zodium backup 2";
const NAMES: &[u8] = b"names";
const OBJECT: &[u8] = b"object";
/// What the name hash of this text is says which key a repository has.
const KEY_CHECK: &[u8] = b"zodium backup key";

/// The key of an encrypted repository.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Reads the text of a key file: 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Refused` for any other text.
    pub fn parse(text: &str) -> Result<Key, BackupError> {
        let digits = text.trim().as_bytes();
        let mut key = [0; KEY_BYTES];
        let is_whole = digits.len() == 2 * KEY_BYTES
            && digits.chunks_exact(2).zip(&mut key).all(|(pair, byte)| {
                let text = std::str::from_utf8(pair).ok();
                let number = text.filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()));
                let number = number.and_then(|text| u8::from_str_radix(text, 16).ok());
                number.is_some_and(|number| {
                    *byte = number;
                    true
                })
            });
        match is_whole {
            true => Ok(Key(key)),
            false => Err(BackupError::Refused(
                "the key must be 64 hexadecimal digits; make one with `openssl rand -hex 32`"
                    .to_owned(),
            )),
        }
    }
}

/// Seals objects and opens them.
pub(super) struct Sealer(Option<Keys>);

struct Keys {
    names: hmac::Key,
    objects: Prk,
    random: SystemRandom,
}

impl Sealer {
    pub(super) fn new(key: Option<&Key>) -> Result<Sealer, BackupError> {
        let Some(key) = key else { return Ok(Sealer(None)) };
        let objects = Salt::new(HKDF_SHA256, SALT).extract(&key.0);
        let names = objects.expand(&[NAMES], HMAC_SHA256).map_err(|_| failed("derive a key"))?;
        let names = hmac::Key::from(names);
        Ok(Sealer(Some(Keys { names, objects, random: SystemRandom::new() })))
    }

    pub(super) fn is_encrypting(&self) -> bool {
        self.0.is_some()
    }

    /// Tells keys apart; `None` without one.
    pub(super) fn key_check(&self) -> Option<Hash> {
        self.is_encrypting().then(|| self.name_of(KEY_CHECK))
    }

    /// The name of a content.
    pub(super) fn name_of(&self, content: &[u8]) -> Hash {
        let digest = Sha256::digest(content);
        match &self.0 {
            None => Hash::from_digest(&digest),
            Some(keys) => Hash::from_digest(hmac::sign(&keys.names, &digest).as_ref()),
        }
    }

    /// The bytes to store under a name.
    pub(super) fn seal(&self, object: &str, content: Vec<u8>) -> Result<Vec<u8>, BackupError> {
        let mut sealed = match &self.0 {
            None => content,
            Some(keys) => keys.encrypt(object, &content)?,
        };
        let sum = crc32c::crc32c(&sealed);
        sealed.extend_from_slice(&sum.to_le_bytes());
        Ok(sealed)
    }

    /// What was sealed; `Err` says what is wrong with it.
    pub(super) fn open(&self, object: &str, sealed: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut content = without_sum(sealed).ok_or("its checksum differs")?;
        match &self.0 {
            None => Ok(content),
            Some(keys) => keys.decrypt(object, &mut content).ok_or_else(|| {
                "it was not encrypted with this key, or is another object".to_owned()
            }),
        }
    }
}

impl Keys {
    fn key_of(&self, object: &str) -> Option<LessSafeKey> {
        let info = [OBJECT, object.as_bytes()];
        let okm = self.objects.expand(&info, &CHACHA20_POLY1305).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(okm)))
    }

    fn encrypt(&self, object: &str, content: &[u8]) -> Result<Vec<u8>, BackupError> {
        let key = self.key_of(object).ok_or_else(|| failed("derive a key"))?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| failed("draw random bytes"))?;
        let length = LENGTH_BYTES + content.len();
        let mut inner = Vec::with_capacity(padded(length) + CHACHA20_POLY1305.tag_len());
        inner.extend_from_slice(&(content.len() as u64).to_be_bytes());
        inner.extend_from_slice(content);
        inner.resize(padded(length), 0);
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let sealed = key.seal_in_place_append_tag(nonce_of, Aad::empty(), &mut inner);
        sealed.map_err(|_| failed("encrypt an object"))?;
        Ok([&nonce[..], &inner].concat())
    }

    fn decrypt(&self, object: &str, sealed: &mut [u8]) -> Option<Vec<u8>> {
        let key = self.key_of(object)?;
        let (nonce, inner) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = key.open_in_place(nonce, Aad::empty(), inner).ok()?;
        let (length, rest) = opened.split_at_checked(LENGTH_BYTES)?;
        let length = u64::from_be_bytes(length.try_into().ok()?);
        Some(rest.get(..usize::try_from(length).ok()?)?.to_vec())
    }
}

/// Whether stored bytes have the checksum that they end with. Needs no key.
pub(super) fn has_its_sum(sealed: &[u8]) -> bool {
    sealed
        .split_last_chunk::<SUM_BYTES>()
        .is_some_and(|(content, sum)| crc32c::crc32c(content) == u32::from_le_bytes(*sum))
}

fn without_sum(mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    has_its_sum(&sealed).then(|| {
        sealed.truncate(sealed.len() - SUM_BYTES);
        sealed
    })
}

/// The length up to which an object is filled (the rule Padme): it keeps few bits of the length,
/// and adds at most 12 %.
fn padded(length: usize) -> usize {
    let Some(exponent) = length.checked_ilog2().filter(|exponent| *exponent > 0) else {
        return length;
    };
    let lost_bits = exponent - (exponent.ilog2() + 1).min(exponent);
    let mask = (1usize << lost_bits) - 1;
    length.saturating_add(mask) & !mask
}

fn failed(what: &str) -> BackupError {
    BackupError::Refused(format!("cannot {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key([byte; KEY_BYTES])
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_and_name_only() {
        for with_key in [false, true] {
            let sealer = |byte| Sealer::new(with_key.then(|| key(byte)).as_ref()).unwrap();
            for length in [0, 1, 100, 70_000] {
                let content = vec![7; length];
                let sealed = sealer(1).seal("chunks/a", content.clone()).unwrap();
                assert_eq!(sealer(1).open("chunks/a", sealed.clone()).unwrap(), content);
                assert!(has_its_sum(&sealed));
                assert_eq!(sealer(2).open("chunks/a", sealed.clone()).is_err(), with_key);
                assert_eq!(sealer(1).open("chunks/b", sealed).is_err(), with_key);
            }
        }
    }

    #[test]
    fn each_flipped_bit_is_found_without_the_key() {
        let sealed = Sealer::new(Some(&key(1))).unwrap().seal("a", vec![0; 40]).unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!has_its_sum(&flipped));
        }
    }

    #[test]
    fn names_depend_on_the_key_and_the_content() {
        let name = |byte, content: &[u8]| Sealer::new(Some(&key(byte))).unwrap().name_of(content);
        assert_eq!(name(1, b"a"), name(1, b"a"));
        assert_ne!(name(1, b"a"), name(2, b"a"));
        assert_ne!(name(1, b"a"), name(1, b"b"));
        assert_ne!(name(1, b"a"), Hash::of(b"a"));
    }

    #[test]
    fn lengths_are_filled_up_by_an_eighth_at_most() {
        for length in (0..3000).chain([1 << 20, (1 << 20) + 1, 12_345_678]) {
            let padded = padded(length);
            assert!((length..=length + length / 8 + 1).contains(&padded), "{length}: {padded}");
        }
        let lengths: std::collections::BTreeSet<_> = (100_000..200_000).map(padded).collect();
        assert!(lengths.len() < 40, "{}", lengths.len());
    }

    #[test]
    fn a_key_is_64_digits() {
        assert!(Key::parse(&format!("{}\n", "0aF9".repeat(16))).is_ok());
        for text in ["", "00", &"0g".repeat(32), &"+0".repeat(32), &"0".repeat(65)] {
            assert!(Key::parse(text).is_err());
        }
    }
}
