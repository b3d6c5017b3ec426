//! A server that is only the link layer: 36 bytes in, a block out.

use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use zodium_net::{
    Bound, CloseReason, Consumed, Limits, Link, Service, Session, WorkerOptions, Workers,
};
use zodium_types::{Address, Oid};

use crate::options::{MessengerServerOptions, Variant};
use crate::wire::RAW_REQUEST_BYTES;

/// Serves until it is killed.
pub(crate) fn serve(options: &MessengerServerOptions) -> Result<()> {
    let dataset = options.dataset.dataset();
    let blocks: Vec<Bytes> = (0..dataset.len()).map(|oid| dataset.data(Oid(oid)).into()).collect();
    let variant = options.variant;
    let mut limits = Limits::default();
    if variant == Variant::Unthrottled {
        limits.output_bytes_high = usize::MAX;
    }
    // One worker, as the floor has one thread. Every worker sends the same blocks.
    let service = move |_| Messenger { blocks: blocks.iter().cloned().collect(), variant };
    let workers = WorkerOptions { limits, ..WorkerOptions::default() };
    let workers = Workers::start(workers, service)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: options.port };
        let bound = Bound::bind(&address).await;
        let listener = bound.and_then(Bound::listen).context("cannot listen")?;
        loop {
            let (incoming, peer) = listener.accept().await;
            workers.assign(incoming, peer);
        }
    })
}

struct Messenger {
    blocks: Rc<[Bytes]>,
    variant: Variant,
}

struct Peer {
    link: Link,
    blocks: Rc<[Bytes]>,
    variant: Variant,
}

impl Service for Messenger {
    type Session = Peer;

    fn open(&self, link: Link) -> Peer {
        Peer { link, blocks: Rc::clone(&self.blocks), variant: self.variant }
    }
}

impl Session for Peer {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        let (requests, _) = bytes.as_chunks::<RAW_REQUEST_BYTES>();
        for request in requests {
            if !self.is_ready() {
                break;
            }
            let oid = request.first_chunk().map_or(u64::MAX, |oid| u64::from_be_bytes(*oid));
            let number = usize::try_from(oid).ok();
            let block =
                number.and_then(|number| self.blocks.get(number)).ok_or(CloseReason::Refused)?;
            self.answer(block);
            consumed += RAW_REQUEST_BYTES;
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn received_large(&mut self, _frame: Bytes) -> Result<(), CloseReason> {
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        self.variant == Variant::Unthrottled || !self.link.is_congested()
    }

    fn is_established(&self) -> bool {
        true
    }

    fn closed(&mut self) {}
}

impl Peer {
    fn answer(&self, block: &Bytes) {
        let mut output = self.link.output();
        match self.variant {
            Variant::Base | Variant::Unthrottled => output.push(block.clone()),
            Variant::Checksum => {
                std::hint::black_box(crc32c::crc32c(block));
                output.push(block.clone());
            }
            Variant::Allocated => output.push(Bytes::copy_from_slice(block)),
            Variant::Copied => output.buffer().extend_from_slice(block),
        }
    }
}
