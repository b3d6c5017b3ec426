//! Private keys, in all forms that OpenSSL writes.

use std::path::Path;

use pem::Pem;
use pkcs8::EncryptedPrivateKeyInfo;
use rustls_pki_types::PrivateKeyDer;

use crate::TlsError;
use crate::legacy_key::{self, LegacyKeyError};
use crate::pem_file::PemFile;

/// Encrypted PKCS#8.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// Finds the first key in a file. `password` is called only if the key is encrypted.
pub(crate) fn find(
    file: &PemFile,
    password: impl FnOnce() -> Result<Option<Vec<u8>>, TlsError>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = file.path.as_path();
    let section = file.sections.iter().find(|section| section.tag().ends_with("PRIVATE KEY"));
    let section = section.ok_or_else(|| TlsError::NoKey { path: path.to_owned() })?;
    if section.tag() != ENCRYPTED && !legacy_key::is_encrypted(section) {
        return key_of(path, section.tag(), section.contents().to_vec());
    }
    let password = password()?.ok_or_else(|| TlsError::NoPassword { path: path.to_owned() })?;
    if section.tag() == ENCRYPTED {
        return key_of(path, "PRIVATE KEY", decrypt_pkcs8(path, section, &password)?);
    }
    let key = legacy_key::decrypt(section, &password).map_err(|error| match error {
        LegacyKeyError::WrongPassword => TlsError::WrongPassword { path: path.to_owned() },
        LegacyKeyError::Unsupported(what) => unsupported(path, &what),
    })?;
    // With one wrong password in 256 the padding looks right by chance.
    match is_der_sequence(&key) {
        true => key_of(path, section.tag(), key),
        false => Err(TlsError::WrongPassword { path: path.to_owned() }),
    }
}

fn decrypt_pkcs8(path: &Path, section: &Pem, password: &[u8]) -> Result<Vec<u8>, TlsError> {
    let info = EncryptedPrivateKeyInfo::try_from(section.contents())
        .map_err(|error| unsupported(path, &error.to_string()))?;
    match info.decrypt(password) {
        Ok(document) => Ok(document.as_bytes().to_vec()),
        // The crate reports wrong padding as a failed encryption.
        Err(pkcs8::Error::EncryptedPrivateKey(
            pkcs8::pkcs5::Error::DecryptFailed | pkcs8::pkcs5::Error::EncryptFailed,
        )) => Err(TlsError::WrongPassword { path: path.to_owned() }),
        Err(pkcs8::Error::EncryptedPrivateKey(error)) => Err(unsupported(path, &error.to_string())),
        // The decrypted bytes are no key.
        Err(_) => Err(TlsError::WrongPassword { path: path.to_owned() }),
    }
}

fn key_of(path: &Path, label: &str, der: Vec<u8>) -> Result<PrivateKeyDer<'static>, TlsError> {
    match label {
        "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(der.into())),
        "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(der.into())),
        "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(der.into())),
        other => Err(TlsError::Unusable {
            path: path.to_owned(),
            what: format!("a section {other}"),
            reason: "write the key as PKCS#8 (openssl pkcs8 -topk8)".to_owned(),
        }),
    }
}

fn unsupported(path: &Path, what: &str) -> TlsError {
    TlsError::Unusable {
        path: path.to_owned(),
        what: "the encrypted key".to_owned(),
        reason: format!(
            "its encryption is not supported ({what}); write it anew with openssl pkcs8 -topk8 \
             -v2 aes-256-cbc"
        ),
    }
}

/// Whether the bytes are one DER sequence, and nothing after it, as every key is.
fn is_der_sequence(bytes: &[u8]) -> bool {
    let length = match bytes {
        [0x30, short @ 0..=0x7f, ..] => 2 + usize::from(*short),
        [0x30, 0x81, length, ..] => 3 + usize::from(*length),
        [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return false,
    };
    length == bytes.len()
}
