//! Limits of a request.

/// The largest request that is taken. The defaults are the stock server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Longest argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Most arguments, the command's name included.
    pub arguments_max: usize,
    /// Whether the client has authenticated itself. Before that, a request has at most
    /// `UNKNOWN_ARGUMENTS_MAX` arguments of `UNKNOWN_BULK_BYTES_MAX` bytes.
    pub is_authenticated: bool,
}

/// Most arguments of a request before authentication.
pub(crate) const UNKNOWN_ARGUMENTS_MAX: usize = 10;
/// Longest argument before authentication, in bytes.
pub(crate) const UNKNOWN_BULK_BYTES_MAX: usize = 16 << 10;
/// Longest line: of an inline request, or of a length.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            bulk_bytes_max: 512 << 20,
            arguments_max: i32::MAX as usize,
            is_authenticated: true,
        }
    }
}
