//! The model: a keyspace of strings and lists, and what each client is to be answered.
//!
//! Key decision: commands are executed one after the other, in the order in which they reach the
//! server. Commands that wait are tried again when a list comes into being, the oldest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::request::Request;

type Key = Vec<u8>;

#[derive(Clone, Debug)]
enum Content {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
}

/// What the server knows of a client.
#[derive(Clone, Debug, Default)]
struct Session {
    /// The requests of its transaction.
    queue: Option<Vec<Request>>,
    watched: BTreeSet<Key>,
    /// A watched key was changed.
    is_dirty: bool,
    /// What it waits with, and until when, in milliseconds.
    waits: Option<(Request, Option<u64>)>,
    channels: Vec<Vec<u8>>,
}

/// An answer, or that a command has found nothing to take.
enum Answer {
    Bytes(Vec<u8>),
    Nothing,
}

/// The keys, the clients, and what was answered.
#[derive(Default)]
pub(super) struct Model {
    keys: BTreeMap<Key, Content>,
    sessions: BTreeMap<usize, Session>,
    /// Clients that wait, in the order in which they began.
    waiting: Vec<usize>,
    /// Lists that have come into being, for clients that wait.
    filled: VecDeque<Key>,
    /// What clients are to be sent.
    answers: BTreeMap<usize, Vec<u8>>,
    /// What has happened, for the report.
    pub(super) happened: Vec<&'static str>,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Model {
    pub(super) fn connect(&mut self, client: usize) {
        self.sessions.insert(client, Session::default());
    }

    pub(super) fn disconnect(&mut self, client: usize) {
        self.sessions.remove(&client);
        self.answers.remove(&client);
        self.waiting.retain(|other| *other != client);
    }

    pub(super) fn is_waiting(&self, client: usize) -> bool {
        self.waiting.contains(&client)
    }

    pub(super) fn waiting(&self) -> &[usize] {
        &self.waiting
    }

    /// Whether a client's time may end within some milliseconds around a time.
    pub(super) fn is_near_end(&self, now: u64, within: u64) -> bool {
        let ends = self.sessions.values().filter_map(|session| session.waits.as_ref()?.1);
        ends.into_iter().any(|end| end.abs_diff(now) <= within)
    }

    /// Takes what a client is to be sent.
    pub(super) fn take_answers(&mut self, client: usize) -> Vec<u8> {
        self.answers.remove(&client).unwrap_or_default()
    }

    /// Ends the waiting of clients whose time is past.
    pub(super) fn end_waits(&mut self, now: u64) {
        for client in self.waiting.clone() {
            let session = self.session(client);
            let is_past = |(_, end): &mut (Request, Option<u64>)| end.is_some_and(|end| end <= now);
            if session.waits.take_if(is_past).is_some() {
                self.waiting.retain(|other| *other != client);
                self.happened.push("timed out");
                self.answer(client, null_array());
            }
        }
    }

    /// Executes a request, at a time in milliseconds.
    pub(super) fn execute(&mut self, client: usize, request: Request, now: u64) {
        let name = request[0].clone();
        let session = self.session(client);
        match (&*name, &mut session.queue) {
            (b"EXEC", Some(_)) => self.execute_queue(client),
            (b"DISCARD", Some(_)) => {
                (session.queue, session.is_dirty) = (None, false);
                session.watched.clear();
                self.answer(client, simple("OK"));
            }
            (_, Some(queue)) => {
                queue.push(request);
                self.answer(client, simple("QUEUED"));
            }
            (b"MULTI", None) => {
                session.queue = Some(Vec::new());
                self.answer(client, simple("OK"));
            }
            (b"WATCH", None) => {
                session.watched.extend(request[1..].iter().cloned());
                self.answer(client, simple("OK"));
            }
            (b"SUBSCRIBE", None) => {
                if !session.channels.contains(&request[1]) {
                    session.channels.push(request[1].clone());
                }
                let count = session.channels.len();
                let words = [bulk(b"subscribe"), bulk(&request[1]), number(count as i64)];
                self.answer(client, array(words));
            }
            _ => match self.run(client, &request) {
                Answer::Bytes(bytes) => self.answer(client, bytes),
                Answer::Nothing => self.wait(client, request, now),
            },
        }
        self.serve();
    }

    fn session(&mut self, client: usize) -> &mut Session {
        self.sessions.entry(client).or_default()
    }

    fn answer(&mut self, client: usize, bytes: Vec<u8>) {
        self.answers.entry(client).or_default().extend(bytes);
    }

    fn execute_queue(&mut self, client: usize) {
        let session = self.session(client);
        let queue = session.queue.take().unwrap_or_default();
        let is_dirty = std::mem::take(&mut session.is_dirty);
        session.watched.clear();
        if is_dirty {
            self.happened.push("transaction of changed keys");
            return self.answer(client, null_array());
        }
        self.happened.push("transaction");
        let mut bytes = format!("*{}\r\n", queue.len()).into_bytes();
        for request in &queue {
            bytes.extend(match self.run(client, request) {
                Answer::Bytes(bytes) => bytes,
                Answer::Nothing => nothing(request),
            });
        }
        self.answer(client, bytes);
    }

    fn wait(&mut self, client: usize, request: Request, now: u64) {
        let last = request.last().map(|word| String::from_utf8_lossy(word).into_owned());
        let seconds = last.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let end = (seconds > 0).then(|| now + 1000 * seconds);
        self.session(client).waits = Some((request, end));
        self.waiting.push(client);
        self.happened.push("wait");
    }

    /// Tries commands again that wait for lists which have come into being.
    fn serve(&mut self) {
        while let Some(key) = self.filled.pop_front() {
            for client in self.waiting.clone() {
                let Some((request, _)) = self.session(client).waits.clone() else { continue };
                if !matches!(self.keys.get(&key), Some(Content::List(_))) {
                    break;
                }
                if !waits_for(&request).contains(&key) {
                    continue;
                }
                if let Answer::Bytes(bytes) = self.run(client, &request) {
                    self.session(client).waits = None;
                    self.waiting.retain(|other| *other != client);
                    self.happened.push("served");
                    self.answer(client, bytes);
                }
            }
        }
    }

    fn touch(&mut self, key: &[u8]) {
        for session in self.sessions.values_mut() {
            session.is_dirty |= session.watched.contains(key);
        }
    }

    /// Executes a command that is not about its connection.
    fn run(&mut self, client: usize, request: &Request) -> Answer {
        match self.data(client, request) {
            Ok(answer) => answer,
            Err(text) => Answer::Bytes(format!("-{text}\r\n").into_bytes()),
        }
    }

    fn data(&mut self, client: usize, request: &Request) -> Result<Answer, &'static str> {
        let word = |place: usize| request[place].clone();
        let bytes = match &*request[0] {
            b"UNWATCH" => {
                let session = self.session(client);
                session.watched.clear();
                session.is_dirty = false;
                simple("OK")
            }
            b"PUBLISH" => number(self.publish(&request[1], &request[2])),
            b"FLUSHALL" => {
                let keys: Vec<_> = self.keys.keys().cloned().collect();
                keys.iter().for_each(|key| self.touch(key));
                self.keys.clear();
                simple("OK")
            }
            b"SET" => self.set(word(1), word(2)),
            b"MSET" => {
                self.set(word(1), word(2));
                self.set(word(3), word(4))
            }
            b"GET" => self.string(&request[1])?.map_or_else(null, |text| bulk(&text)),
            b"MGET" => array([1, 2].map(|at| match self.keys.get(&request[at]) {
                Some(Content::String(text)) => bulk(text),
                _ => null(),
            })),
            b"INCR" => self.increment(word(1))?,
            b"APPEND" => {
                let mut text = self.string(&request[1])?.unwrap_or_default();
                text.extend(&request[2]);
                let length = text.len();
                self.set(word(1), text);
                number(length as i64)
            }
            b"DEL" => number([1, 2].map(|at| i64::from(self.delete(&request[at]))).iter().sum()),
            b"EXISTS" => {
                let keys = [1, 2].into_iter().filter(|at| self.keys.contains_key(&request[*at]));
                number(keys.count() as i64)
            }
            b"RENAME" => self.rename(&request[1], word(2))?,
            _ => return self.list(request),
        };
        Ok(Answer::Bytes(bytes))
    }

    fn list(&mut self, request: &Request) -> Result<Answer, &'static str> {
        let key = request[1].clone();
        let bytes = match &*request[0] {
            name @ (b"RPUSH" | b"LPUSH") => {
                self.elements(&key)?;
                for element in &request[2..] {
                    self.push(&key, name == b"LPUSH", element.clone());
                }
                number(self.elements(&key)?.map_or(0, |list| list.len()) as i64)
            }
            b"LPOP" => self.pop(&key, true)?.map_or_else(null, |element| bulk(&element)),
            b"RPOP" => self.pop(&key, false)?.map_or_else(null, |element| bulk(&element)),
            b"LLEN" => number(self.elements(&key)?.map_or(0, |list| list.len()) as i64),
            b"LRANGE" => {
                let list = self.elements(&key)?.cloned().unwrap_or_default();
                array(list.iter().map(|element| bulk(element)))
            }
            name @ (b"BLPOP" | b"BRPOP") => {
                for key in waits_for(request) {
                    if let Some(element) = self.pop(key, name == b"BLPOP")? {
                        return Ok(Answer::Bytes(array([bulk(key), bulk(&element)])));
                    }
                }
                return Ok(Answer::Nothing);
            }
            name => match self.move_element(request)? {
                Some(element) => bulk(&element),
                None if name == b"BLMOVE" => return Ok(Answer::Nothing),
                None => null(),
            },
        };
        Ok(Answer::Bytes(bytes))
    }

    fn move_element(&mut self, request: &Request) -> Result<Option<Vec<u8>>, &'static str> {
        let (source, target) = (&request[1], &request[2]);
        if self.elements(source)?.is_none() {
            return Ok(None);
        }
        self.elements(target)?;
        let Some(element) = self.pop(source, request[3] == b"LEFT")? else { return Ok(None) };
        self.push(target, request[4] == b"LEFT", element.clone());
        Ok(Some(element))
    }

    fn set(&mut self, key: Key, text: Vec<u8>) -> Vec<u8> {
        self.touch(&key);
        self.keys.insert(key, Content::String(text));
        simple("OK")
    }

    fn increment(&mut self, key: Key) -> Result<Vec<u8>, &'static str> {
        const NO_INTEGER: &str = "ERR value is not an integer or out of range";
        let text = self.string(&key)?.unwrap_or_else(|| b"0".to_vec());
        let text = String::from_utf8(text).map_err(|_| NO_INTEGER)?;
        let is_canonical = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
        let old = text.parse::<i64>().ok().filter(|_| is_canonical).ok_or(NO_INTEGER)?;
        let sum = old.checked_add(1).ok_or("ERR increment or decrement would overflow")?;
        self.set(key, sum.to_string().into());
        Ok(number(sum))
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let is_there = self.keys.remove(key).is_some();
        if is_there {
            self.touch(key);
        }
        is_there
    }

    fn rename(&mut self, source: &[u8], target: Key) -> Result<Vec<u8>, &'static str> {
        let content = self.keys.get(source).cloned().ok_or("ERR no such key")?;
        if source != target {
            self.delete(source);
            self.touch(&target);
            if matches!(content, Content::List(_)) {
                self.filled.push_back(target.clone());
            }
            self.keys.insert(target, content);
        }
        Ok(simple("OK"))
    }

    fn string(&self, key: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Content::String(text)) => Ok(Some(text.clone())),
            Some(Content::List(_)) => Err(WRONG_TYPE),
        }
    }

    fn elements(&mut self, key: &[u8]) -> Result<Option<&mut VecDeque<Vec<u8>>>, &'static str> {
        match self.keys.get_mut(key) {
            None => Ok(None),
            Some(Content::List(list)) => Ok(Some(list)),
            Some(Content::String(_)) => Err(WRONG_TYPE),
        }
    }

    /// Adds an element to what is a list, or nothing.
    fn push(&mut self, key: &[u8], is_left: bool, element: Vec<u8>) {
        if !self.keys.contains_key(key) {
            self.filled.push_back(key.to_vec());
        }
        self.touch(key);
        let new = || Content::List(VecDeque::new());
        if let Content::List(list) = self.keys.entry(key.to_vec()).or_insert_with(new) {
            match is_left {
                true => list.push_front(element),
                false => list.push_back(element),
            }
        }
    }

    fn pop(&mut self, key: &[u8], is_left: bool) -> Result<Option<Vec<u8>>, &'static str> {
        let Some(list) = self.elements(key)? else { return Ok(None) };
        let element = if is_left { list.pop_front() } else { list.pop_back() };
        let is_empty = list.is_empty();
        self.touch(key);
        if is_empty {
            self.keys.remove(key);
        }
        Ok(element)
    }

    /// Sends a message to those that have subscribed; returns their number.
    fn publish(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let is_there = |session: &Session| session.channels.iter().any(|name| name == channel);
        let sessions = self.sessions.iter().filter(|(_, session)| is_there(session));
        let receivers: Vec<usize> = sessions.map(|(client, _)| *client).collect();
        for client in &receivers {
            self.happened.push("message");
            self.answer(*client, array([bulk(b"message"), bulk(channel), bulk(message)]));
        }
        receivers.len() as i64
    }
}

/// The keys that a request waits for.
fn waits_for(request: &Request) -> &[Vec<u8>] {
    match &*request[0] {
        b"BLMOVE" => &request[1..2],
        _ => &request[1..request.len() - 1],
    }
}

/// The answer to a request that finds nothing in a transaction, where it does not wait.
fn nothing(request: &Request) -> Vec<u8> {
    match &*request[0] {
        b"BLMOVE" => null(),
        _ => null_array(),
    }
}

fn simple(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}

fn number(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn null_array() -> Vec<u8> {
    b"*-1\r\n".to_vec()
}

fn null() -> Vec<u8> {
    b"$-1\r\n".to_vec()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn array(elements: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let elements: Vec<_> = elements.into_iter().collect();
    let mut bytes = format!("*{}\r\n", elements.len()).into_bytes();
    elements.into_iter().for_each(|element| bytes.extend(element));
    bytes
}
