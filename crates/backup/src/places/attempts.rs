//! Requests to an object store that are tried again.

use std::time::Duration;

use object_store::Error;

/// Attempts where the client does not try again by itself, as after an answer that was lost; and
/// the wait before the second one, which grows.
pub(super) const ATTEMPTS_MAX: u32 = 6;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Tries a request until it is answered, or a few times.
pub(super) async fn insist<T>(attempt: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let mut attempts = 1;
    loop {
        match attempt().await {
            Err(error) if attempts < ATTEMPTS_MAX && is_passing(&error) => {
                tokio::time::sleep(ATTEMPT_PAUSE * attempts).await;
                attempts += 1;
            }
            answered => return answered,
        }
    }
}

/// Whether another attempt may succeed.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Generic { .. } | Error::JoinError { .. })
}
