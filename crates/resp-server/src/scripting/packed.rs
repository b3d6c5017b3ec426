//! What a script encodes, while it is made.
//!
//! A table may contain others more than once, so that it has far more values when it is encoded
//! than Lua's memory has. Its bytes are limited, and an encoding ends with its script.

use mlua::{Error, Lua, Result};

use super::running::must_end;

/// Most bytes: no longer string has room in a Lua state.
const BYTES_MAX: usize = 128 << 20;
/// Values between two looks at whether the script must end.
const VALUES_UNSEEN: usize = 4096;

/// Bytes that values are encoded to.
pub(super) struct Packed<'lua> {
    lua: &'lua Lua,
    pub(super) bytes: Vec<u8>,
    /// Values since the last look at whether the script must end.
    seen: usize,
}

impl<'lua> Packed<'lua> {
    pub(super) fn new(lua: &'lua Lua) -> Packed<'lua> {
        Packed { lua, bytes: Vec::new(), seen: 0 }
    }

    /// Notes a value. An error says that there must be no more.
    pub(super) fn check(&mut self) -> Result<()> {
        if self.bytes.len() > BYTES_MAX {
            let most = BYTES_MAX >> 20;
            return Err(Error::runtime(format!("the encoded value is longer than {most} MiB")));
        }
        self.note(1)
    }

    /// Notes so many values that were looked at.
    pub(super) fn note(&mut self, values: usize) -> Result<()> {
        self.seen += values;
        if self.seen >= VALUES_UNSEEN {
            self.seen = 0;
            if let Some(text) = must_end(self.lua) {
                return Err(Error::runtime(text));
            }
        }
        Ok(())
    }
}
