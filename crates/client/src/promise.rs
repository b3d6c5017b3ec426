//! A reply that is still to come, of a server of ZEO.

use crate::ClientError;

/// One reply, or why there is none.
pub(crate) type Promise<T> = zodium_transport::Promise<Result<T, ClientError>>;
