//! ZEO 5: the wire format.

#![forbid(unsafe_code)]

pub mod codec;
