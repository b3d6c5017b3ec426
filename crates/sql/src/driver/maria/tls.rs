//! TLS to a server: which authority signs its certificate, and this client's own certificate.
//!
//! Key decision: as soon as one of the options is given, a connection without TLS is refused. The
//! server's certificate is always verified. The options have the names of MariaDB's and MySQL's
//! clients.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use mysql::{ClientIdentity, DriverError, Error as ServerError, SslOpts};
use rustls::{CertificateError, Error as TlsError};

/// The TLS of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MariaTls {
    /// The file of authorities; those that are publicly known besides.
    authority: Option<PathBuf>,
    /// The files of the client's certificate and key.
    own: Option<(PathBuf, PathBuf)>,
    mode: Mode,
}

/// The options as they are written. Those of the address come before those of an option file.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsOptions {
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    mode: Option<Mode>,
}

/// What of a server is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// There is no TLS.
    Disabled,
    /// Its certificate.
    Authority,
    /// Its certificate, and that it is for the host of the address.
    Identity,
}

impl TlsOptions {
    /// Takes an option, whose name has hyphens; whether it is one of TLS.
    ///
    /// # Errors
    /// When its value is unknown.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "ssl-ca" => self.authority = Some(value.into()),
            "ssl-cert" => self.certificate = Some(value.into()),
            "ssl-key" => self.key = Some(value.into()),
            "ssl-mode" => self.mode = Some(mode_of(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// These, and what is missing from others.
    pub(super) fn or(self, other: TlsOptions) -> TlsOptions {
        TlsOptions {
            authority: self.authority.or(other.authority),
            certificate: self.certificate.or(other.certificate),
            key: self.key.or(other.key),
            mode: self.mode.or(other.mode),
        }
    }

    /// The TLS that they ask for; `None`: none.
    ///
    /// # Errors
    /// When a file cannot be read, or there is a certificate without a key.
    pub(super) fn complete(self) -> Result<Option<MariaTls>, String> {
        let TlsOptions { authority, certificate, key, mode } = self;
        let is_asked = authority.is_some() || certificate.is_some() || key.is_some();
        let mode = match mode {
            Some(Mode::Disabled) => return Ok(None),
            None if !is_asked => return Ok(None),
            mode => mode.unwrap_or(Mode::Identity),
        };
        let own = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("ssl-cert and ssl-key belong together: give both".to_owned()),
        };
        let named = [("ssl-ca", authority.as_ref())].into_iter().chain([
            ("ssl-cert", own.as_ref().map(|(certificate, _)| certificate)),
            ("ssl-key", own.as_ref().map(|(_, key)| key)),
        ]);
        for (name, path) in named {
            if let Some(path) = path {
                let cannot = |error| format!("{name}: cannot read {}: {error}", path.display());
                File::open(path).map_err(cannot)?;
            }
        }
        Ok(Some(MariaTls { authority, own, mode }))
    }
}

fn mode_of(value: &str) -> Result<Mode, String> {
    match value.to_ascii_uppercase().as_str() {
        "DISABLED" => Ok(Mode::Disabled),
        "VERIFY_CA" => Ok(Mode::Authority),
        "VERIFY_IDENTITY" => Ok(Mode::Identity),
        _ => Err(format!(
            "ssl-mode {value:?} is not offered: VERIFY_IDENTITY, VERIFY_CA or DISABLED; a \
             certificate that is not verified keeps no one out"
        )),
    }
}

impl MariaTls {
    /// As the driver takes it.
    pub(super) fn options(&self) -> SslOpts {
        let own = self.own.clone();
        SslOpts::default()
            .with_root_cert_path(self.authority.clone())
            .with_client_identity(
                own.map(|(certificate, key)| ClientIdentity::new(certificate, key)),
            )
            .with_danger_skip_domain_validation(self.mode == Mode::Authority)
    }
}

/// Whether an error is one of certificates: it stays until an operator mends it.
pub(super) fn is_refusal(error: &ServerError) -> bool {
    matches!(error, ServerError::TlsError(_))
        || matches!(error, ServerError::DriverError(DriverError::TlsNotSupported))
        || inside(error).is_some_and(|error| {
            matches!(error, TlsError::InvalidCertificate(_) | TlsError::AlertReceived(_))
        })
}

/// The text of an error of TLS; `None` for others.
pub(in crate::driver) fn shown(error: &ServerError) -> Option<String> {
    if let ServerError::TlsError(error) = error {
        return Some(format!("the files for TLS cannot be used: {error}"));
    }
    if let ServerError::DriverError(DriverError::TlsNotSupported) = error {
        let text = "the server offers no TLS: set ssl_cert and ssl_key there, or leave the ssl \
                    options out";
        return Some(text.to_owned());
    }
    let error = inside(error)?;
    let advice = match error {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no authority in the file of ssl-ca has signed it, or no one else has that is known"
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "it is for other hosts: name one of them, or set ssl-mode=VERIFY_CA",
        TlsError::InvalidCertificate(_) => "see ssl_cert of the server",
        TlsError::AlertReceived(_) => {
            return Some(format!("TLS failed: the server refuses the connection ({error})"));
        }
        _ => return Some(format!("TLS failed: {error}")),
    };
    Some(format!("TLS failed: the server's certificate is refused: {advice} ({error})"))
}

/// The error of TLS that has ended a connection, if it was one.
fn inside(error: &ServerError) -> Option<&TlsError> {
    let error = match error {
        ServerError::IoError(error) => error,
        ServerError::CodecError(error) => error.source()?.downcast_ref::<io::Error>()?,
        _ => return None,
    };
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(given: &[(&str, &str)]) -> Result<Option<MariaTls>, String> {
        let mut options = TlsOptions::default();
        for (name, value) in given {
            assert!(options.set(name, value)?, "{name}");
        }
        options.complete()
    }

    #[test]
    fn options_ask_for_tls_and_are_complete() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(complete(&[]), Ok(None));
        assert_eq!(complete(&[("ssl-ca", path), ("ssl-mode", "disabled")]), Ok(None));
        let found = complete(&[("ssl-ca", path)]).unwrap().unwrap();
        assert_eq!((found.mode, found.own), (Mode::Identity, None));
        let found = complete(&[("ssl-mode", "VERIFY_CA")]).unwrap().unwrap();
        assert_eq!((found.mode, &found.authority), (Mode::Authority, &None));
        assert!(found.options().skip_domain_validation());
        for (given, expected) in [
            (&[("ssl-ca", "/absent")][..], "ssl-ca: cannot read /absent"),
            (&[("ssl-cert", path)], "give both"),
            (&[("ssl-mode", "REQUIRED")], "not offered"),
        ] {
            let error = complete(given).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(TlsOptions::default().set("ssl-crl", "x"), Ok(false));
    }

    #[test]
    fn refusals_of_certificates_are_told_and_last() {
        let io = |error: TlsError| {
            ServerError::IoError(io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let unknown = io(TlsError::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(shown(&unknown).unwrap().contains("ssl-ca") && is_refusal(&unknown));
        let ServerError::IoError(inner) = io(TlsError::HandshakeNotComplete) else { panic!() };
        let read = ServerError::CodecError(inner.into());
        assert!(shown(&read).unwrap().contains("TLS failed") && !is_refusal(&read));
        let name = io(TlsError::InvalidCertificate(CertificateError::NotValidForName));
        assert!(shown(&name).unwrap().contains("ssl-mode=VERIFY_CA") && is_refusal(&name));
        let cut = ServerError::IoError(io::ErrorKind::ConnectionReset.into());
        assert!(shown(&cut).is_none() && !is_refusal(&cut));
    }
}
