//! The same calls split differently: cut at every byte, byte by byte, or all in one write.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use crate::support::{Difference, same};

/// Sends the same calls cut in two at every byte, and byte by byte; returns the number of ways.
///
/// # Errors
///
/// If an answer differs from that to the calls in one write.
pub(crate) fn check() -> Result<usize, Difference> {
    let mut ways = 0;
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let data = include_bytes!("../../../fuzz/corpus/history.fs").to_vec();
        let server = InProcess::start(encoding, Some(data))?;
        let (length, expected) = answers(&server, &[])?;
        let all: Vec<usize> = (1..length).collect();
        let halves = all.chunks(1).map(<[usize]>::to_vec);
        for ends in halves.chain([all.clone()]) {
            let what = format!("{} pieces, the first of {} bytes", ends.len() + 1, ends[0]);
            same(what, answers(&server, &ends)?.1, expected.clone())?;
            ways += 1;
        }
    }
    Ok(ways)
}

/// The length of what was sent, handshake included, and the answers.
fn answers(server: &InProcess, ends: &[usize]) -> Result<(usize, Vec<Answer>), Difference> {
    let mut client = Client::connect(server.socket())?;
    let ids = gather(&mut client)?;
    let length = client.gathered_bytes();
    client.send_pieces(ends)?;
    let answers = ids.iter().map(|id| client.answer(id)).collect::<Result<_, _>>()?;
    Ok((length, answers))
}

/// Buffers calls of many kinds and lengths, including an aborted transaction.
fn gather(client: &mut Client) -> Result<Vec<MessageId>, Difference> {
    let empty = || Value::from(&b""[..]);
    let mut ids = vec![client.call("register", ["1".into(), false.into()])?];
    ids.push(client.call("ping", [])?);
    ids.push(client.load(Oid(0), Tid::MAX));
    ids.push(client.load(Oid(1), Tid::MAX));
    ids.push(client.load(Oid(1 << 30), Tid::MAX));
    ids.push(client.call("history", [Oid(0).into(), 5.into()])?);
    let begin = [1.into(), empty(), empty(), Value::Dict(Vec::new()), Value::None, " ".into()];
    client.tell("tpc_begin", begin)?;
    let data = Value::from(vec![b'x'; 300]);
    client.tell("storea", [Oid(1 << 30).into(), Tid::ZERO.into(), data, 1.into()])?;
    ids.push(client.call("tpc_abort", [1.into()])?);
    ids.push(client.call("lastTransaction", [])?);
    ids.push(client.call("ping", [])?);
    Ok(ids)
}
