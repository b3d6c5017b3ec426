//! How a load is requested and answered: by ZEO, or raw by the floor.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, BytesMut};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, encode_frame, peek_frame, split_frame};
use zodium_zeo::codec::{
    Encoding, MessageId, ServerMessage, decode_server_message, encode_load_before_request,
    encode_request,
};

use crate::dataset::{Dataset, OBJECT_BYTES_MAX};
use crate::neo_reply::Loading;
use crate::reply::{ReplyTemplate, WrongReply, decode_reply};
use crate::resp_requests::Requesting;
use crate::verifier::Verifier;

/// Size of a raw request: the oid, padded to the smallest size of ZEO's request.
pub(crate) const RAW_REQUEST_BYTES: usize = 36;

/// The longest reply, whatever the encoding adds to the data.
const FRAME_BYTES_MAX: u32 = OBJECT_BYTES_MAX + 1024;
const HANDSHAKE_READ_BYTES: usize = 4096;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// ZEO, in the encoding that the server announces; its storage is called `1`.
    Zeo,
    /// Raw: oids in, data out.
    Raw,
    /// NEO's; its clients need a master.
    Neo,
    /// RESP.
    Resp,
}

/// The client's side of a connection, after the handshake.
#[derive(Debug)]
pub(crate) enum Wire {
    Zeo { encoding: Encoding, template: ReplyTemplate },
    Raw,
    Neo(Loading),
    Resp(Requesting),
}

/// The first message in some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A complete and correct reply.
    Reply { oid: Oid, bytes: usize },
    /// A message that needs no reply.
    Notice { bytes: usize },
    /// An incomplete message.
    Part,
}

impl Wire {
    /// Performs the handshake. Further bytes from the server are left in `rest`.
    pub(crate) fn open(protocol: Protocol, stream: &TcpStream, rest: &mut Vec<u8>) -> Result<Wire> {
        match protocol {
            Protocol::Raw => Ok(Wire::Raw),
            Protocol::Neo => bail!("a client of NEO must be known to its master"),
            Protocol::Resp => bail!("a client of RESP must know which requests to make"),
            Protocol::Zeo => {
                let mut input = BytesMut::new();
                let encoding =
                    register(stream, &mut input, true).context("the handshake failed")?;
                rest.extend_from_slice(&input);
                Ok(Wire::Zeo { encoding, template: ReplyTemplate::new(encoding)? })
            }
        }
    }

    /// `M5`, `Z5` or `raw`; NEO and RESP have one encoding.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Wire::Zeo { encoding: Encoding::Msgpack, .. } => "M5",
            Wire::Zeo { encoding: Encoding::Pickle, .. } => "Z5",
            Wire::Raw => "raw",
            Wire::Neo(_) | Wire::Resp(_) => "",
        }
    }

    /// Encodes the request for the current revision of an object.
    pub(crate) fn put_request(&mut self, out: &mut BytesMut, oid: Oid) -> Result<()> {
        match self {
            Wire::Zeo { encoding, .. } => {
                encode_load_before_request(*encoding, out, oid, Tid::MAX);
            }
            Wire::Raw => {
                out.put_u64(oid.0);
                out.put_bytes(0, RAW_REQUEST_BYTES - size_of::<u64>());
            }
            Wire::Neo(loading) => loading.put_request(out, oid)?,
            Wire::Resp(requesting) => requesting.put_request(out, oid)?,
        }
        Ok(())
    }

    /// Takes the first message off `bytes`, and checks it. `oldest` is the first object requested
    /// and not yet answered: raw replies come in order, others may not.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        dataset: &Dataset,
        oldest: Option<Oid>,
        verifier: &mut Verifier,
    ) -> Result<Taken> {
        match self {
            Wire::Zeo { encoding, template } => {
                let Peek::Complete(payload) = peek_frame(bytes, FRAME_BYTES_MAX)? else {
                    return Ok(Taken::Part);
                };
                let taken = HEADER_LENGTH + payload.len();
                if let Some(oid) = oldest
                    && let Some(data) = template.data(payload, dataset, oid)?
                {
                    verifier.check(dataset, oid, data)?;
                    return Ok(Taken::Reply { oid, bytes: taken });
                }
                Ok(match decode_reply(*encoding, payload, dataset, verifier)? {
                    Some(oid) => Taken::Reply { oid, bytes: taken },
                    None => Taken::Notice { bytes: taken },
                })
            }
            Wire::Raw => {
                let Some(oid) = oldest else { bail!(WrongReply::NotAsked(Oid(u64::MAX))) };
                let Some(data) = bytes.get(..dataset.length(oid)) else { return Ok(Taken::Part) };
                verifier.check(dataset, oid, data)?;
                Ok(Taken::Reply { oid, bytes: data.len() })
            }
            Wire::Neo(loading) => Ok(match loading.take(bytes, dataset, verifier)? {
                Some((oid, bytes)) => Taken::Reply { oid, bytes },
                None => Taken::Part,
            }),
            Wire::Resp(requesting) => Ok(match requesting.take(bytes, oldest, verifier)? {
                Some((oid, bytes)) => Taken::Reply { oid, bytes },
                None => Taken::Part,
            }),
        }
    }
}

/// Accepts the server's encoding and registers with storage `1`.
pub(crate) fn register(
    mut stream: &TcpStream,
    input: &mut BytesMut,
    read_only: bool,
) -> Result<Encoding> {
    let announced = read_frame(stream, input)?;
    let encoding = Encoding::from_announcement(&announced)?;
    let mut output = BytesMut::new();
    encode_frame(&mut output, &announced)?;
    encode_request(
        encoding,
        &mut output,
        1,
        "register",
        &Value::tuple(["1".into(), read_only.into()]),
    )?;
    stream.write_all(&output)?;
    loop {
        let payload = read_frame(stream, input)?;
        let ServerMessage::Reply(reply) = decode_server_message(encoding, &payload)? else {
            continue;
        };
        ensure!(reply.id == MessageId::Number(1), WrongReply::Id(reply.id));
        if let Err(error) = reply.result {
            bail!("the server does not register storage \"1\": {} {:?}", error.name, error.payload);
        }
        return Ok(encoding);
    }
}

fn read_frame(mut stream: &TcpStream, input: &mut BytesMut) -> Result<bytes::Bytes> {
    loop {
        if let Some(payload) = split_frame(input, FRAME_BYTES_MAX)? {
            return Ok(payload);
        }
        let mut buffer = [0; HANDSHAKE_READ_BYTES];
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the server closed the connection");
        input.extend_from_slice(&buffer[..count]);
    }
}
