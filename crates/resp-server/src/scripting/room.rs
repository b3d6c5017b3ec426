//! Room in Lua's memory.

use mlua::{Lua, Result};

/// Most memory of a worker's Lua state.
pub(super) const BYTES_MAX: usize = 128 << 20;
/// Memory that the values of a text may take, for each byte of it. An empty array of MessagePack is
/// one byte, and a table in Lua within another one.
const BYTES_PER_BYTE: usize = 128;
/// Memory that they may take in any case.
const BYTES_MIN: usize = 4 << 10;

/// Makes the values of a text of so many bytes. `make` runs no script.
///
/// Under a limit each step may fail, and is a protected call therefore. What is within the limit in
/// any case is made without it, which takes half the time.
pub(super) fn with_room<T>(
    lua: &Lua,
    text_bytes: usize,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let most = text_bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(BYTES_MIN);
    if lua.used_memory().saturating_add(most) > BYTES_MAX {
        return make();
    }
    lua.set_memory_limit(0)?;
    let made = make();
    lua.set_memory_limit(BYTES_MAX)?;
    made
}

#[cfg(test)]
mod tests {
    use mlua::{Error, Value};

    use super::*;
    use crate::scripting::answer::Answer;
    use crate::scripting::{json, messagepack};

    #[test]
    fn values_are_made_under_the_limit_unless_they_are_within_it_in_any_case() {
        let lua = Lua::new();
        let limit = || lua.set_memory_limit(BYTES_MAX);
        limit().unwrap();
        assert_eq!(with_room(&lua, 1000, limit).unwrap(), 0);
        assert_eq!(with_room(&lua, BYTES_MAX / BYTES_PER_BYTE, limit).unwrap(), BYTES_MAX);
        let failed: Result<()> = with_room(&lua, 1000, || Err(Error::runtime("")));
        assert!(failed.is_err());
        assert_eq!(limit().unwrap(), BYTES_MAX);
    }

    /// Makes values of a text, which may take no more than is thought.
    fn make(text: &[u8], make: impl FnOnce(&Lua) -> Result<Value>) {
        let lua = Lua::new();
        lua.gc_stop();
        let before = lua.used_memory();
        make(&lua).unwrap();
        let (taken, most) = (lua.used_memory() - before, text.len() * BYTES_PER_BYTE + BYTES_MIN);
        let shown = String::from_utf8_lossy(&text[..20]);
        assert!(taken <= most, "{shown:?} takes {taken} bytes of {most}");
    }

    #[test]
    fn values_take_no_more_memory_than_is_told_by_their_text() {
        const COUNT: usize = 33_000;
        let array = |head: Vec<u8>, one: &[u8]| [head, one.repeat(COUNT)].concat();
        let answers = ["*0", "%0", "~0", "+", ":1", ",1", "#t", "$0\r\n", "=0\r\n"];
        for answer in answers.map(|one| format!("{one}\r\n")) {
            for head in [format!("*{COUNT}\r\n"), format!("%{}\r\n", COUNT / 2)] {
                let text = array(head.into_bytes(), answer.as_bytes());
                make(&text, |lua| Answer::of(&text).value(lua));
            }
        }
        for one in [&b"\x90"[..], b"\x80", b"\x00", b"\xa0", b"\x81\x00\x00", b"\x91\x00"] {
            for head in [b"\xdd\x00\x00\x80\xe8", b"\xdf\x00\x00\x40\x74"] {
                let text = array(head.to_vec(), one);
                make(&text, |lua| messagepack::unpack(lua, &mut &text[..], 0));
            }
        }
        for one in ["[],", "{},", "1,", r#""","#, "[1],", r#"{"":1},"#] {
            let text = format!("[{}1]", one.repeat(COUNT));
            make(text.as_bytes(), |lua| {
                json::decode(lua, text.as_bytes()).map_err(Error::external)
            });
        }
        let fields: String = (0..COUNT).map(|number| format!("\"{number}\":1,")).collect();
        let text = format!("{{{fields}\"\":1}}");
        make(text.as_bytes(), |lua| json::decode(lua, text.as_bytes()).map_err(Error::external));
    }
}
