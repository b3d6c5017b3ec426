//! Certificate revocation lists.

use std::collections::HashSet;
use std::path::Path;

use webpki::{
    CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptions, RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::parse_x509_crl;

use crate::certificate::{Number, now_seconds};
use crate::{TlsError, words};

/// All revocation lists of a server or a client.
#[derive(Debug, Default)]
pub(crate) struct RevocationLists {
    /// Each with the time of its issue, in seconds since the Unix epoch; newest first.
    lists: Vec<(i64, CertRevocationList<'static>)>,
    /// All certificates that they revoke.
    revoked: HashSet<Number>,
}

impl RevocationLists {
    /// Adds a list from a file.
    pub(crate) fn add(&mut self, path: &Path, der: &[u8]) -> Result<(), TlsError> {
        let unusable = |reason: String| TlsError::Unusable {
            path: path.to_owned(),
            what: "a revocation list".to_owned(),
            reason,
        };
        let (_, parsed) =
            parse_x509_crl(der).map_err(|error| unusable(words::of_parsing(&error)))?;
        let list = OwnedCertRevocationList::from_der(der).map_err(|error| match error {
            webpki::Error::UnsupportedCrlVersion => unusable(
                "it is of version 1; make one of version 2 (a crlnumber or crl_extensions in \
                 the configuration of openssl ca)"
                    .to_owned(),
            ),
            error => unusable(words::of_text(&error.to_string())),
        })?;
        if parsed.next_update().is_some_and(|next| next.timestamp() < now_seconds()) {
            let path = path.display();
            tracing::warn!(
                %path,
                "a revocation list has expired: certificates of its authority are rejected"
            );
        }
        let issuer = parsed.issuer().as_raw();
        self.revoked.extend(parsed.iter_revoked_certificates().map(|certificate| Number {
            issuer: issuer.to_vec(),
            serial: certificate.raw_serial().to_vec(),
        }));
        let made = parsed.last_update().timestamp();
        // webpki uses the first of several lists of one authority.
        let place = self.lists.partition_point(|(other, _)| *other > made);
        self.lists.insert(place, (made, list.into()));
        Ok(())
    }

    /// Whether any list revokes it, whatever signed that list: the files are trusted.
    pub(crate) fn has(&self, number: &Number) -> bool {
        self.revoked.contains(number)
    }

    pub(crate) fn for_chains(&self) -> Vec<&CertRevocationList<'_>> {
        self.lists.iter().map(|(_, list)| list).collect()
    }
}

/// Checks end entities as OpenSSL does: once there is a list, every authority needs a current one.
pub(crate) fn options<'a>(
    lists: &'a [&'a CertRevocationList<'a>],
) -> Option<RevocationOptions<'a>> {
    let builder = RevocationOptionsBuilder::new(lists).ok()?;
    Some(
        builder
            .with_depth(RevocationCheckDepth::EndEntity)
            .with_status_policy(UnknownStatusPolicy::Deny)
            .with_expiration_policy(ExpirationPolicy::Enforce)
            .build(),
    )
}
