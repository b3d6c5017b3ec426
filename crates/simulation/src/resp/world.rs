//! The server, its clients and the model, step by step.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use zodium_net::{Host, Limits};
use zodium_resp_server::{Options, RespService, Server};

use super::model::Model;
use super::peer::Peer;
use super::request;
use crate::pipe::Pipe;
use crate::random::Chance;
use crate::trace::Trace;

const WORKERS: usize = 3;
const CLIENTS: u64 = 8;
/// Most bytes on the way from the server.
const WINDOW: usize = 1 << 24;
/// How long the server may take for all that has reached it, in milliseconds. Time passes only when
/// it has nothing to do.
const STEP_MS: u64 = 1;

/// Everything of a run.
pub(super) struct World {
    hosts: Vec<Rc<Host<RespService>>>,
    peers: Vec<Peer>,
    model: Model,
    chance: Chance,
    pub(super) trace: Trace,
    begin: Instant,
}

impl World {
    /// Starts a server. Must be called within a local set, on paused time.
    pub(super) fn new(chance: Chance, trace: Trace) -> World {
        let options = Options { workers: WORKERS, port: 6379, ..Options::default() };
        let server = Arc::new(Server::new(options));
        let host = |number| {
            let service = RespService::new(Arc::clone(&server), number);
            Rc::new(Host::new(service, Arc::default(), None))
        };
        let hosts = (0..WORKERS).map(host).collect();
        let (peers, model, begin) = (Vec::new(), Model::default(), Instant::now());
        let mut world = World { hosts, peers, model, chance, trace, begin };
        for _ in 0..world.chance.number(2..=CLIENTS) {
            let peer = world.connect();
            world.model.connect(world.peers.len());
            world.peers.push(peer);
        }
        world
    }

    /// A connection to any worker.
    fn connect(&self) -> Peer {
        let (pipe, end) = Pipe::new(WINDOW);
        let host = Rc::clone(&self.hosts[self.chance.place(WORKERS)]);
        tokio::task::spawn_local(async move {
            host.run(end, "peer", None, Limits::default()).await;
        });
        Peer::new(pipe)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something happens, and the server does what there is to do.
    pub(super) async fn step(&mut self) -> Result<(), String> {
        let client = self.chance.place(self.peers.len());
        match self.chance.number(0..=99) {
            0..=3 => self.replace(client),
            4..=6 => {
                let time = self.chance.number(100..=3000);
                self.trace.event("time", &[time]);
                pass(time).await;
            }
            _ if self.model.is_waiting(client) => {}
            _ => self.act(client),
        }
        self.settle().await
    }

    /// Ends a connection, whatever is on its way, and makes another one.
    fn replace(&mut self, client: usize) {
        let is_waiting = self.model.is_waiting(client);
        self.trace.event("gone", &[client as u64, is_waiting.into()]);
        self.peers[client].pipe.reset(0);
        self.model.disconnect(client);
        self.peers[client] = self.connect();
        self.model.connect(client);
    }

    /// A client sends something, or some of what it has sent reaches the server.
    fn act(&mut self, client: usize) {
        let peer = &mut self.peers[client];
        if peer.under_way() == 0 {
            if peer.is_subscriber {
                return;
            }
            peer.is_subscriber = !peer.is_queueing && self.chance.permille(5);
            let requests = match peer.is_subscriber {
                true => vec![request::subscription(&self.chance)],
                false => request::pipeline(&self.chance, &mut peer.is_queueing),
            };
            requests.into_iter().for_each(|request| peer.send(request));
        }
        let most = peer.under_way();
        let count = match self.chance.permille(600) {
            true => most,
            false => self.chance.number(1..=most as u64) as usize,
        };
        let (arrived, now) = (peer.deliver(count), self.now());
        for request in arrived {
            let name = String::from_utf8_lossy(&request[0]).into_owned();
            let words = digest(request.iter().map(|word| &word[..]));
            self.trace.event("request", &[client as u64, words, name.len() as u64]);
            self.model.execute(client, request, now);
        }
    }

    /// Lets the server do what it can, and compares what it has sent with the model.
    async fn settle(&mut self) -> Result<(), String> {
        pass(STEP_MS).await;
        while self.model.is_near_end(self.now(), 5) {
            pass(STEP_MS).await;
        }
        self.model.end_waits(self.now());
        for what in self.model.happened.drain(..) {
            self.trace.event(what, &[]);
        }
        for (client, peer) in self.peers.iter().enumerate() {
            let (received, expected) = (peer.receive(), self.model.take_answers(client));
            if received[..] != expected[..] {
                return Err(format!(
                    "client {client} was sent {:?}, and not {:?}",
                    shown(&received),
                    shown(&expected)
                ));
            }
            if !received.is_empty() {
                self.trace.event("answer", &[client as u64, digest([&received[..]])]);
            }
            if peer.pipe.is_over() {
                return Err(format!("the server has ended the connection of client {client}"));
            }
        }
        Ok(())
    }

    /// Ends all waiting, and compares all keys.
    pub(super) async fn finish(&mut self) -> Result<(), String> {
        for client in self.model.waiting().to_vec() {
            self.replace(client);
        }
        self.settle().await?;
        self.replace(0);
        for number in 1..=9 {
            let key = format!("key{number}").into_bytes();
            for words in [
                vec![b"GET".to_vec(), key.clone()],
                vec![b"LRANGE".to_vec(), key.clone(), b"0".to_vec(), b"-1".to_vec()],
            ] {
                let peer = &mut self.peers[0];
                peer.send(words);
                let now = self.now();
                for request in self.peers[0].deliver(usize::MAX) {
                    self.model.execute(0, request, now);
                }
                self.settle().await?;
            }
        }
        self.note_places().await;
        Ok(())
    }

    /// Notes the order of all keys: it tells in which places they are, which the seed decides too.
    async fn note_places(&mut self) {
        let mut fill = vec![b"MSET".to_vec()];
        fill.extend((0..32).map(|word: u32| word.to_string().into_bytes()));
        let peer = &mut self.peers[0];
        peer.send(fill);
        peer.send(vec![b"KEYS".to_vec(), b"*".to_vec()]);
        peer.deliver(usize::MAX);
        pass(STEP_MS).await;
        let keys = self.peers[0].receive();
        self.trace.event("keys", &[digest([&keys[..]])]);
    }
}

/// Lets time pass. It passes only when nothing is left to do.
async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn digest<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut digest = crate::trace::Digest::default();
    words.into_iter().for_each(|word| digest.add(word));
    digest.0
}

/// The beginning of some bytes, as text.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(2000).collect()
}
