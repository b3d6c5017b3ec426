//! What a client is to be sent: answers in the order of its requests, and messages between them.
//!
//! Key decision: a message comes after the answers to requests that were executed before it was
//! sent. Until its worker has taken its letters it may come later than answers that follow, so it
//! floats up to the next barrier.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

use super::reply::shown;

/// What a message comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Channel(Vec<u8>),
    Pattern(Vec<u8>),
    /// It is an answer to a command that has waited, or an invalidation.
    Server,
}

#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    source: Source,
    /// Whether its client may go without it: it has unsubscribed meanwhile, or was killed.
    may_miss: bool,
}

#[derive(Clone, Debug)]
enum Item {
    Answer(Vec<u8>),
    /// The answer to `HELLO`, for the client with an id.
    Greeting(u64),
    Message(Message),
    /// Messages before it come before answers behind it.
    Barrier {
        /// Whether the worker has taken them: its client cannot miss them any more.
        is_taken: bool,
    },
}

/// What is between the server and a client.
#[derive(Default)]
pub(super) struct Stream {
    items: VecDeque<Item>,
    /// Messages whose place is past.
    floating: VecDeque<Message>,
    /// What has come, and is not the whole of anything.
    rest: BytesMut,
    /// What follows may be missing.
    is_ending: bool,
}

/// How bytes that have come begin.
enum Beginning {
    /// With this, which has so many bytes.
    Whole(usize),
    /// With a part of this, and they end there.
    Part,
    Other,
}

impl Stream {
    pub(super) fn answer(&mut self, bytes: Vec<u8>) {
        self.items.push_back(Item::Answer(bytes));
    }

    pub(super) fn greet(&mut self, id: u64) {
        self.items.push_back(Item::Greeting(id));
    }

    pub(super) fn message(&mut self, bytes: Vec<u8>, source: Source) {
        let message = Message { bytes, source, may_miss: self.is_ending };
        self.items.push_back(Item::Message(message));
    }

    /// All messages until now come before later answers. `is_taken` is whether the worker has sent
    /// them.
    pub(super) fn bar(&mut self, is_taken: bool) {
        let messages = self.items.iter().rev().find(|item| !matches!(item, Item::Answer(_)));
        let is_barred = match messages {
            Some(Item::Barrier { is_taken: true }) => true,
            Some(Item::Barrier { is_taken: false }) => !is_taken,
            _ => self.floating.is_empty() && messages.is_none(),
        };
        if !is_barred {
            self.items.push_back(Item::Barrier { is_taken });
        }
    }

    /// Messages that its worker may not have taken yet are not sent if they are of this source.
    pub(super) fn unsubscribe(&mut self, source: &Source) {
        self.let_miss(|message| message.source == *source);
    }

    /// The server is ending the connection: messages from now on may be missing, and those that
    /// its worker may not have taken yet.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
        self.let_miss(|_| true);
    }

    /// Messages behind the last barrier may be missing, if they fit.
    fn let_miss(&mut self, fits: impl Fn(&Message) -> bool) {
        for item in self.items.iter_mut().rev() {
            match item {
                Item::Barrier { is_taken: true } => return,
                Item::Message(message) => message.may_miss |= fits(message),
                _ => {}
            }
        }
        self.floating.iter_mut().for_each(|message| message.may_miss |= fits(message));
    }

    /// Bytes that have not come.
    pub(super) fn missing(&self) -> usize {
        let of_item = |item: &Item| match item {
            Item::Answer(bytes) => bytes.len(),
            Item::Message(message) => message.bytes.len(),
            Item::Greeting(_) | Item::Barrier { .. } => 0,
        };
        let floating: usize = self.floating.iter().map(|message| message.bytes.len()).sum();
        floating + self.items.iter().map(of_item).sum::<usize>()
    }

    /// What has to come still, if anything has.
    pub(super) fn lacking(&mut self) -> Option<String> {
        self.go_on();
        self.floating.retain(|message| !message.may_miss);
        let items = self.items.iter();
        let needed = |item: &&Item| match item {
            Item::Barrier { .. } => false,
            Item::Message(message) => !message.may_miss,
            Item::Answer(_) | Item::Greeting(_) => true,
        };
        let first = self.floating.front().map(|message| shown(&message.bytes));
        first.or_else(|| items.clone().find(needed).map(|item| format!("{item:?}")))
    }

    /// Takes what has come.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.extend_from_slice(bytes);
        while !self.rest.is_empty() {
            self.go_on();
            if self.take_message() {
                continue;
            }
            let beginning = match self.items.front() {
                Some(Item::Answer(bytes)) => beginning(&self.rest, bytes),
                Some(Item::Greeting(id)) => greeting(&self.rest, *id),
                _ => Beginning::Other,
            };
            match beginning {
                Beginning::Whole(length) => {
                    self.rest.advance(length);
                    self.items.pop_front();
                }
                Beginning::Part => return Ok(()),
                Beginning::Other if self.is_part_of_message() => return Ok(()),
                Beginning::Other => return Err(self.mismatch()),
            }
        }
        Ok(())
    }

    /// Has messages float whose place has come.
    fn go_on(&mut self) {
        loop {
            match self.items.front() {
                Some(Item::Message(_)) => {
                    if let Some(Item::Message(message)) = self.items.pop_front() {
                        self.floating.push_back(message);
                    }
                }
                Some(Item::Barrier { .. }) if self.floating.iter().all(|m| m.may_miss) => {
                    // Those that were not sent will not be.
                    if self.begins_with_floating() {
                        return;
                    }
                    self.floating.clear();
                    self.items.pop_front();
                }
                _ => return,
            }
        }
    }

    fn begins_with_floating(&self) -> bool {
        let mut floating = self.floating.iter();
        floating.any(|m| !matches!(beginning(&self.rest, &m.bytes), Beginning::Other))
    }

    /// Takes a message if it has come; whether it has.
    fn take_message(&mut self) -> bool {
        let is_it = |m: &Message| matches!(beginning(&self.rest, &m.bytes), Beginning::Whole(_));
        let found = self.floating.iter().take(self.reachable()).position(is_it);
        let Some(place) = found else { return false };
        self.rest.advance(self.floating[place].bytes.len());
        self.floating.drain(..=place);
        true
    }

    /// Number of floating messages of which the next may be one: those before it may be missing.
    fn reachable(&self) -> usize {
        let needed = self.floating.iter().position(|message| !message.may_miss);
        needed.map_or(self.floating.len(), |place| place + 1)
    }

    fn is_part_of_message(&self) -> bool {
        let mut floating = self.floating.iter().take(self.reachable());
        floating.any(|m| matches!(beginning(&self.rest, &m.bytes), Beginning::Part))
    }

    fn mismatch(&self) -> String {
        let floating: Vec<_> = self.floating.iter().map(|m| shown(&m.bytes)).collect();
        let next = match self.items.front() {
            Some(Item::Answer(bytes)) => shown(bytes),
            other => format!("{other:?}"),
        };
        format!("was sent {:?}, and not {next:?} or {floating:?}", shown(&self.rest))
    }
}

fn beginning(bytes: &[u8], expected: &[u8]) -> Beginning {
    match (bytes.starts_with(expected), expected.starts_with(bytes)) {
        (true, _) => Beginning::Whole(expected.len()),
        (false, true) => Beginning::Part,
        (false, false) => Beginning::Other,
    }
}

/// The answer to `HELLO 3`: its version is not looked at.
fn greeting(bytes: &[u8], id: u64) -> Beginning {
    const BEGIN: &[u8] = b"%7\r\n$6\r\nserver\r\n";
    const END: &[u8] = b"$7\r\nmodules\r\n*0\r\n";
    if bytes.len() <= BEGIN.len() && BEGIN.starts_with(bytes) {
        return Beginning::Part;
    }
    let Some(end) = bytes.windows(END.len()).position(|window| window == END) else {
        return if bytes.starts_with(BEGIN) { Beginning::Part } else { Beginning::Other };
    };
    let id = format!("$2\r\nid\r\n:{id}\r\n");
    match bytes[..end].windows(id.len()).any(|window| window == id.as_bytes()) {
        true => Beginning::Whole(end + END.len()),
        false => Beginning::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(items: &[&str]) -> Stream {
        let mut stream = Stream::default();
        for item in items {
            match item.strip_prefix('m') {
                Some(text) => stream.message(format!("[{text}]").into(), Source::Server),
                None if *item == "|" => stream.bar(true),
                None => stream.answer(format!("({item})").into()),
            }
        }
        stream
    }

    #[test]
    fn messages_float_up_to_a_barrier() {
        let items = ["a", "m1", "b", "m2", "|", "c"];
        for right in ["(a)[1](b)[2](c)", "(a)(b)[1][2](c)"] {
            let mut whole = stream(&items);
            assert_eq!(whole.receive(right.as_bytes()), Ok(()), "{right}");
            assert_eq!(whole.lacking(), None);
            let mut cut = stream(&items);
            for byte in right.as_bytes() {
                assert_eq!(cut.receive(&[*byte]), Ok(()));
            }
            assert_eq!(cut.lacking(), None);
        }
        for wrong in ["[1](a)", "(a)(b)[2]", "(a)(b)[1](c)", "(b)", "(a)(a)"] {
            assert!(stream(&items).receive(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let mut short = stream(&items);
        assert_eq!(short.receive(b"(a)(b)[1]"), Ok(()));
        assert!(short.lacking().is_some());
    }

    #[test]
    fn messages_of_what_a_client_has_left_may_be_missing() {
        for right in ["(a)(b)", "(a)[1](b)", "(a)(b)[1]"] {
            let mut stream = stream(&["a"]);
            stream.message(b"[1]".to_vec(), Source::Channel(b"c".to_vec()));
            stream.unsubscribe(&Source::Channel(b"c".to_vec()));
            stream.answer(b"(b)".to_vec());
            stream.bar(true);
            assert_eq!(stream.receive(right.as_bytes()), Ok(()), "{right}");
            assert_eq!(stream.lacking(), None);
        }
    }
}
