//! A client's connection: what it has sent, and which requests have reached the server as a whole.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::request::{Request, encoded};
use crate::pipe::Pipe;

/// A client.
pub(super) struct Peer {
    pub(super) pipe: Pipe,
    /// Requests that have not reached the server, and the bytes of each that have not.
    sent: VecDeque<(Request, usize)>,
    /// Whether it is within a transaction, once all that it has sent has reached the server.
    pub(super) is_queueing: bool,
    /// It gets messages, and sends nothing else.
    pub(super) is_subscriber: bool,
}

impl Peer {
    pub(super) fn new(pipe: Pipe) -> Peer {
        Peer { pipe, sent: VecDeque::new(), is_queueing: false, is_subscriber: false }
    }

    pub(super) fn send(&mut self, request: Request) {
        let bytes = encoded(&request);
        self.pipe.send(&bytes);
        self.sent.push_back((request, bytes.len()));
    }

    /// Bytes that have not reached the server.
    pub(super) fn under_way(&self) -> usize {
        self.pipe.requests_under_way()
    }

    /// Has bytes reach the server. Returns the requests that are there as a whole now.
    pub(super) fn deliver(&mut self, mut count: usize) -> Vec<Request> {
        self.pipe.deliver_requests(count);
        let mut arrived = Vec::new();
        while let Some((request, missing)) = self.sent.front_mut() {
            if *missing > count {
                *missing -= count;
                break;
            }
            count -= *missing;
            arrived.push(std::mem::take(request));
            self.sent.pop_front();
        }
        arrived
    }

    /// Takes what the server has sent.
    pub(super) fn receive(&self) -> BytesMut {
        let mut received = BytesMut::new();
        self.pipe.deliver_replies(usize::MAX, &mut received);
        received
    }
}
