//! Objects of storages as keys: `GET zodb:NAME:OID[@TID]` and `HGETALL`. Read-only.
//!
//! Key decision: an object is no key of the keyspace, so no lock of it is held while the storage is
//! read. What is not in memory, or takes long to decode, is a job of another thread; the client's
//! later requests wait, as behind a command that waits for a list.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zodium_pickle::{Limits, Value, class_of_record, decode_record_to_show};
use zodium_resp::{Arguments, Version};
use zodium_types::{Oid, Tid};

use crate::After;
use crate::client::Client;
use crate::commands::{Command, Keys, Request, hexadecimal};
use crate::fail::Fail;
use crate::json;
use crate::local::LocalServer;
use crate::reply::Reply;
use crate::server::Server;
use crate::storages::{Loaded, PREFIX};

/// Records up to this length are decoded by the worker.
const DECODED_BYTES_MAX: usize = 16 << 10;

/// JSON may have so many bytes for each byte of a record, and [`JSON_BYTES_LEAST`] besides: a
/// pickle may mention a long text again and again.
const GROWTH_MAX: usize = 64;
const JSON_BYTES_LEAST: usize = 1 << 20;

/// The error of other uses.
pub(crate) const READ_ONLY: Fail = Fail::fixed(
    "ERR keys that begin with 'zodb:' are objects of storages: only GET and HGETALL take them, \
     outside of transactions and scripts",
);
const NO_OBJECT: Fail =
    Fail::fixed("ERR an object is named zodb:STORAGE:OID or zodb:STORAGE:OID@TID");

/// What is asked of an object.
#[derive(Clone, Copy)]
struct Question {
    storage: usize,
    oid: Oid,
    /// The newest revision before this transaction is meant.
    before: Tid,
    is_decoded: bool,
    version: Version,
    /// Longest JSON of an object.
    json_bytes_max: usize,
}

/// Whether a command is about an object in place of a key.
pub(crate) fn is_object(server: &Server, command: &Command, arguments: Arguments) -> bool {
    if arguments.len() < 2 || matches!(command.keys, Keys::None) || !server.beside.is_attached() {
        return false;
    }
    let is_named = |word: &[u8]| is_name(server, word);
    is_named(arguments.word(1)) || command.keys_of(arguments).any(is_named)
}

/// Whether a word names an object in place of a key.
pub(crate) fn is_name(server: &Server, word: &[u8]) -> bool {
    word.starts_with(PREFIX) && server.beside.is_attached()
}

/// Answers a command about an object, at once or later.
pub(crate) fn read(command: &Command, request: Request) -> Result<After, Fail> {
    let Request { local, client, arguments, reply } = request;
    let is_decoded = match command.name {
        "get" => false,
        "hgetall" => true,
        _ => return Err(READ_ONLY),
    };
    if client.queue.borrow().is_some() {
        return Err(READ_ONLY);
    }
    let (name, oid, before) = parse(&arguments.word(1)[PREFIX.len()..]).ok_or(NO_OBJECT)?;
    let storage = local.server.beside.admitted(name, client.rights())?;
    let version = client.version.get();
    let json_bytes_max = local.server.settings.bulk_bytes_max();
    let question = Question { storage, oid, before, is_decoded, version, json_bytes_max };
    let loaded = local.server.beside.storages()?.load(storage, oid, before, false);
    match &loaded {
        Loaded::WouldBlock => answer_later(local, client, question),
        Loaded::Data(data) if is_decoded && data.len() > DECODED_BYTES_MAX => {
            answer_later(local, client, question);
        }
        _ => answer(question, &loaded, reply),
    }
    Ok(After::Continue)
}

/// The storage, the object and the revision of a name.
fn parse(name: &[u8]) -> Option<(&[u8], Oid, Tid)> {
    let colon = name.iter().rposition(|byte| *byte == b':')?;
    let (storage, object) = (&name[..colon], &name[colon + 1..]);
    let at = object.iter().position(|byte| *byte == b'@');
    let oid = Oid(hexadecimal(&object[..at.unwrap_or(object.len())])?);
    let before = match at {
        Some(at) => Tid(hexadecimal(&object[at + 1..])?.min(Tid::MAX.0 - 1)).next(),
        None => Tid::MAX,
    };
    Some((storage, oid, before))
}

/// Has a job answer, and the client wait for it.
fn answer_later(local: &Rc<LocalServer>, client: &Rc<Client>, question: Question) {
    let (local, id) = (Rc::clone(local), client.id());
    let server = Arc::clone(&local.server);
    client.is_loading.set(true);
    let job = tokio::task::spawn_blocking(move || {
        let Question { storage, oid, before, .. } = question;
        let loaded = server.beside.storages().map(|all| all.load(storage, oid, before, true));
        let mut buffer = BytesMut::new();
        let mut reply = Reply::to_buffer(&mut buffer, question.version);
        answer(question, &loaded.unwrap_or(Loaded::Missing), &mut reply);
        buffer.freeze()
    });
    tokio::task::spawn_local(async move {
        // A job that panicked has ended the process already.
        let answer: Bytes = job.await.unwrap_or_default();
        local.end_load(id, &answer);
    });
}

fn answer(question: Question, loaded: &Loaded, reply: &mut Reply) {
    match loaded {
        Loaded::Data(data) if question.is_decoded => {
            answer_decoded(data, question.json_bytes_max, reply)
        }
        Loaded::Data(data) => reply.shared(data),
        Loaded::Missing if question.is_decoded => reply.map(0),
        Loaded::Missing => reply.null(),
        Loaded::Failed(reason) => {
            let oid = question.oid;
            reply.error(&format!("ERR cannot load object {oid}: {reason}"));
        }
        Loaded::WouldBlock => reply.error("ERR the storage did not wait for its disk"),
    }
}

/// The class of a record, and its state: the attributes of an object with a dict of them, otherwise
/// the state as a whole.
fn answer_decoded(data: &[u8], json_bytes_max: usize, reply: &mut Reply) {
    let (_, state) = match decode_record_to_show(data, &Limits::OBJECTS) {
        Ok(record) => record,
        Err(error) => return reply.error(&format!("ERR the record cannot be decoded: {error}")),
    };
    let bytes_max = data.len().saturating_mul(GROWTH_MAX).saturating_add(JSON_BYTES_LEAST);
    if !json::fits([&state], bytes_max.min(json_bytes_max)) {
        reply.error("ERR the record is too large as JSON. Read its bytes with GET");
        return;
    }
    let attributes = state.as_dict().and_then(|entries| {
        let name = |(name, value)| Some((attribute_name(name)?, value));
        entries.iter().map(|(name, value)| (name, value)).map(name).collect::<Option<Vec<_>>>()
    });
    let class = class_of_record(data).map_or_else(String::new, |class| class.to_string());
    reply.map(1 + attributes.as_ref().map_or(1, Vec::len));
    reply.text("$class");
    reply.text(&class);
    match attributes {
        Some(attributes) => attributes.into_iter().for_each(|(name, value)| {
            reply.bulk(name);
            reply.text(&json::of(value).to_string());
        }),
        None => {
            reply.text("$state");
            reply.text(&json::of(&state).to_string());
        }
    }
}

/// The name of an attribute: text, or bytes of Python 2.
fn attribute_name<'a>(name: &'a Value) -> Option<&'a [u8]> {
    name.as_str().map(str::as_bytes).or_else(|| name.as_bytes())
}

impl LocalServer {
    /// Sends a client the answer of a job, and takes its requests again.
    pub(crate) fn end_load(&self, client: u64, answer: &[u8]) {
        let Some(client) = self.client(client) else { return };
        client.is_loading.set(false);
        client.answer_late(answer);
        client.link.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_repeats_a_long_text_is_not_shown_as_json() {
        let answered = |repeats: usize| {
            let mut record = b"cmodule\nName\n.}X\x01\0\0\0aX\xff\0\0\0".to_vec();
            record.extend([b'x'; 255]);
            record.extend(b"q\x01");
            let list: Vec<u8> = (0..repeats).flat_map(|_| *b"h\x01").collect();
            record.extend([b"0](".as_slice(), &list, b"es."].concat());
            let mut buffer = BytesMut::new();
            let mut reply = Reply::to_buffer(&mut buffer, Version::Two);
            answer_decoded(&record, usize::MAX, &mut reply);
            String::from_utf8_lossy(&buffer).into_owned()
        };
        let short = answered(2);
        assert!(short.starts_with("*4\r\n$6\r\n$class\r\n"), "{short}");
        assert!(short.contains(&format!("[\"{0}\",\"{0}\"]", "x".repeat(255))), "{short}");
        let long = answered(20_000);
        assert!(long.starts_with("-ERR the record is too large as JSON"), "{}", &long[..50]);
    }

    #[test]
    fn names_of_objects() {
        let object =
            |storage: &'static str, oid, before| Some((storage.as_bytes(), Oid(oid), Tid(before)));
        assert_eq!(parse(b"1:2a"), object("1", 42, Tid::MAX.0));
        assert_eq!(parse(b"a:b@c:0x2a@10"), object("a:b@c", 42, 17));
        assert_eq!(parse(b":0@ffffffffffffffff"), object("", 0, Tid::MAX.0));
        for wrong in [&b"1"[..], b"1:", b"1:x", b"1:1@", b"1:1@x", b"1:1@1@1"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
