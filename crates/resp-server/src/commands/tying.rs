//! Ties of keys to objects: `ZTIE`, the option `TIE` of `SET`, and `ZTID`.

use zodium_keyspace::{Removed, Tie};
use zodium_resp::Arguments;
use zodium_types::{Oid, Tid};

use crate::beside::Beside;
use crate::call::{Call, Options, is};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::storages::Rights;
use crate::ties::{self, Object, TieWish};

const MIXED: Fail = Fail::fixed(
    "ERR AT is a transaction of one storage: tie the key to objects of one storage only",
);

/// A number of up to 16 hexadecimal digits, also behind `0x`.
pub(crate) fn hexadecimal(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hexadecimal && digits.len() <= 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// An object: its oid, behind the name of its storage and a colon unless it is the first one.
/// `None` if the word is none.
fn object(beside: &Beside, rights: Rights, word: &[u8]) -> Option<Result<Object, Fail>> {
    let colon = word.iter().rposition(|byte| *byte == b':');
    let oid = Oid(hexadecimal(&word[colon.map_or(0, |at| at + 1)..])?);
    let storage = match colon {
        Some(at) => beside.admitted(&word[..at], rights),
        None => beside
            .storages()
            .map(|storages| storages.name(0))
            .and_then(|name| beside.admitted(name.as_bytes(), rights)),
    };
    Some(storage.map(|storage| (storage, oid)))
}

/// The objects behind `TIE`, and `AT tid` if it follows.
pub(super) fn wish(
    beside: &Beside,
    rights: Rights,
    options: &mut Options,
) -> Result<TieWish, Fail> {
    let mut wish = TieWish::default();
    while let Some(word) = options.peek() {
        match object(beside, rights, word) {
            Some(object) => wish.objects.push(object?),
            None => break,
        }
        options.next();
    }
    if wish.objects.is_empty() {
        return Err(SYNTAX);
    }
    if options.peek().is_some_and(|word| is(word, "at")) {
        options.next();
        wish.view = Some(Tid(hexadecimal(options.value()?).ok_or(SYNTAX)?));
        let first = wish.objects[0].0;
        if wish.objects.iter().any(|(storage, _)| *storage != first) {
            return Err(MIXED);
        }
    }
    wish.objects.sort_unstable();
    wish.objects.dedup();
    Ok(wish)
}

/// Ties for a key; `None` if one of the objects may have changed since the view.
pub(super) fn bind(call: &Call, key: &[u8], wish: &TieWish) -> Result<Option<Vec<Tie>>, Fail> {
    let place = Removed { database: call.hold.database, key: key.into() };
    let beside = &call.server.beside;
    Ok(beside.ties.bind(beside.storages()?, &place, wish, call.commit))
}

/// Ties a key to what another one is tied to, whose value it has got.
pub(super) fn tie_as(call: &mut Call, key: &[u8], ties: &[Tie]) {
    let Ok(storages) = call.server.beside.storages() else { return };
    let place = Removed { database: call.hold.database, key: key.into() };
    let again = |tie| call.server.beside.ties.again(storages, tie, place.clone());
    call.hold.tie(key, ties.iter().map(again).collect());
}

/// `ZTIE key oid [oid ...] [AT tid]`
pub(super) fn ztie(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let mut options = Options::from(call.arguments, 2);
    let wish = wish(&call.server.beside, call.rights(), &mut options)?;
    if options.left() > 0 {
        return Err(SYNTAX);
    }
    if !call.hold.has(key) {
        call.reply.flag(false);
        return Ok(());
    }
    let ties = bind(call, key, &wish)?;
    let is_current = ties.is_some();
    match ties {
        Some(ties) => {
            call.log_ties(&ties);
            ties::add(call.hold, key, ties);
        }
        None => {
            // Its value is older than a commit that would have removed it.
            call.log_instead([&b"del"[..], key]);
            call.remove(key);
        }
    }
    call.reply.flag(is_current);
    Ok(())
}

/// Checks the options of a `ZTIE` that is executed later.
pub(crate) fn check_ztie(beside: &Beside, rights: Rights, arguments: Arguments) -> Outcome {
    wish(beside, rights, &mut Options::from(arguments, 2)).map(drop)
}

/// `ZTID [storage]`
pub(super) fn ztid(call: &mut Call) -> Outcome {
    let storages = call.server.beside.storages()?;
    let name = match call.len() {
        1 => storages.name(0).as_bytes(),
        2 => call.word(1),
        _ => return Err(Fail::arity("ztid")),
    };
    let storage = call.server.beside.admitted(name, call.rights())?;
    call.reply.text(&storages.last_tid(storage).to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hexadecimal() {
        assert_eq!(hexadecimal(b"0x1f"), Some(31));
        assert_eq!(hexadecimal(b"00000000000000FF"), Some(255));
        for wrong in [&b""[..], b"0x", b"g", b"+1", b"00000000000000001", b"\xff"] {
            assert_eq!(hexadecimal(wrong), None, "{wrong:?}");
        }
    }
}
