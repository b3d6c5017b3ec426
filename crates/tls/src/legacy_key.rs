//! Keys in OpenSSL's encryption from before PKCS#8: `Proc-Type: 4,ENCRYPTED` and `DEK-Info`.
//!
//! RFC 1421 defines the headers. The key derivation is OpenSSL's own (`EVP_BytesToKey` with MD5
//! and one round, as in `PEM_do_header`). New keys should not use it, but old ones are still in
//! use.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, KeyIvInit};
use md5::{Digest, Md5};
use pem::Pem;

/// Why a key cannot be decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LegacyKeyError {
    /// The headers name an encryption that is not supported.
    Unsupported(String),
    /// The decrypted bytes are no key.
    WrongPassword,
}

/// Whether a section is encrypted in this way.
pub(crate) fn is_encrypted(section: &Pem) -> bool {
    section.headers().get("Proc-Type").is_some_and(|value| value.contains("ENCRYPTED"))
}

/// Decrypts the content of a section.
pub(crate) fn decrypt(section: &Pem, password: &[u8]) -> Result<Vec<u8>, LegacyKeyError> {
    let unsupported = |what: &str| LegacyKeyError::Unsupported(what.to_owned());
    let info = section.headers().get("DEK-Info").ok_or_else(|| unsupported("no DEK-Info"))?;
    let (cipher, iv) = info.split_once(',').ok_or_else(|| unsupported(info))?;
    let iv = from_hex(iv.trim()).ok_or_else(|| unsupported(info))?;
    let decrypt = match cipher.trim() {
        "DES-EDE3-CBC" => decrypt_cbc::<cbc::Decryptor<des::TdesEde3>>,
        "AES-128-CBC" => decrypt_cbc::<cbc::Decryptor<aes::Aes128>>,
        "AES-192-CBC" => decrypt_cbc::<cbc::Decryptor<aes::Aes192>>,
        "AES-256-CBC" => decrypt_cbc::<cbc::Decryptor<aes::Aes256>>,
        other => return Err(unsupported(other)),
    };
    decrypt(section.contents(), password, &iv)
}

fn decrypt_cbc<C: KeyIvInit + BlockDecryptMut>(
    data: &[u8],
    password: &[u8],
    iv: &[u8],
) -> Result<Vec<u8>, LegacyKeyError> {
    let salt = iv.get(..8).unwrap_or(iv);
    let key = derive_key(password, salt, C::key_size());
    let cipher = C::new_from_slices(&key, iv)
        .map_err(|_| LegacyKeyError::Unsupported("an IV of another length".to_owned()))?;
    cipher.decrypt_padded_vec_mut::<Pkcs7>(data).map_err(|_| LegacyKeyError::WrongPassword)
}

/// Derives the key: MD5 of the previous digest, the password and the salt, until it is long enough.
fn derive_key(password: &[u8], salt: &[u8], length: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let mut last = Vec::new();
    while key.len() < length {
        last = Md5::new().chain_update(&last).chain_update(password).chain_update(salt).finalize()
            [..]
            .to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(length);
    key
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(dek_info: &str) -> Pem {
        let text = format!(
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: {dek_info}\n\n\
             AAECAwQFBgcICQoLDA0ODw==\n-----END EC PRIVATE KEY-----\n"
        );
        pem::parse(text).unwrap()
    }

    #[test]
    fn what_is_not_known_or_broken_is_refused() {
        assert!(is_encrypted(&section("x")));
        for info in ["RC2-CBC,00", "AES-128-CBC", "AES-128-CBC,0x", "AES-128-CBC,00", "é,é"] {
            let refused = decrypt(&section(info), b"1234");
            assert!(matches!(refused, Err(LegacyKeyError::Unsupported(_))), "{info}: {refused:?}");
        }
        let iv = "00112233445566778899AABBCCDDEEFF";
        let wrong = decrypt(&section(&format!("AES-128-CBC,{iv}")), b"1234");
        assert_eq!(wrong, Err(LegacyKeyError::WrongPassword));
    }
}
