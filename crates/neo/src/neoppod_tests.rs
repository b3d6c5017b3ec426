//! What NEO/py writes and reads, bit for bit.
//!
//! `tests/messages.txt` has a message of each kind as NEO/py's own encoder writes it. With
//! `NEOPPOD`, a checkout of NEO/py, and `NEOPPOD_PYTHON`, an interpreter with msgpack and six,
//! NEO/py decodes and encodes random messages too (`tests/neoppod.py`). `NEOPPOD_RECORD=1` then
//! writes `tests/messages.txt` again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Once;

use bytes::BytesMut;
use zodium_types::{Oid, Tid};

use crate::messages::*;
use crate::samples::Choices;
use crate::{
    Address, CellState, Checksum, ClusterState, ErrorCode, GREETING, Kind, Map, Message, NodeId,
    NodeState, NodeType, Packet, Scan, Scanner, TableId, Value, encode,
};

/// Bytes as hexadecimal digits and what they decode to, line by line.
const MESSAGES: &str = include_str!("../tests/messages.txt");

fn encoded<'a>(id: u32, message: impl Into<Message<'a>>) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(id, message, &mut out).unwrap();
    out.to_vec()
}

fn decoded(bytes: &[u8]) -> Packet<'_> {
    let Ok(Scan::Complete(frame)) = Scanner::default().scan(bytes) else {
        panic!("not a whole message: {bytes:x?}")
    };
    assert_eq!(frame.bytes().len(), bytes.len());
    Packet::decode(frame).unwrap()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|digit| *digit != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn is<'a>(digits: &str, id: u32, message: impl Into<Message<'a>>) {
    let (bytes, message) = (bytes_of(digits), message.into());
    assert_eq!(encoded(id, message.clone()), bytes, "{message:?}");
    assert_eq!(decoded(&bytes), Packet { id, message });
}

fn storage() -> NodeId {
    NodeId::of(NodeType::Storage, 1).unwrap()
}

fn address() -> Option<Address> {
    Some(Address { host: "127.0.0.1".to_owned(), port: 10_001 })
}

#[test]
fn identifications_are_as_neo_writes_them() {
    let client = RequestIdentification {
        node_type: NodeType::Client,
        id: None,
        address: None,
        cluster: "test",
        id_timestamp: None,
        extra: Map::default(),
    };
    is("93 00 01 96 d40402 c0 c0 c40474657374 c0 80", 0, client);
    let text = |text: &'static str| Value::Bytes(text.as_bytes());
    let extra = [
        ("devpath", Value::Array(vec![text("host"), text("64769")])),
        ("new_nid", Value::Array(Vec::new())),
    ];
    let request = RequestIdentification {
        node_type: NodeType::Storage,
        id: Some(storage()),
        address: address(),
        cluster: "test",
        id_timestamp: None,
        extra: extra.into_iter().collect(),
    };
    is(
        "93 00 01 96 d40401 01 92c4093132372e302e302e31cd2711 c40474657374 c0 82 \
         c40764657670617468 92 c404686f7374 c4053634373639 c4076e65775f6e6964 90",
        0,
        request,
    );
    let accepted = AcceptIdentification {
        node_type: NodeType::Master,
        id: NodeId::of(NodeType::Master, 1),
        your_id: NodeId::of(NodeType::Client, 1),
    };
    is("93 00 cd8001 93 d40400 d2f0000001 d2e0000001", 0, accepted);
    is("93 03 02 90", 3, Ping {});
    is("93 03 cd8002 90", 3, Pong {});
}

#[test]
fn tables_are_as_neo_writes_them() {
    let nodes = vec![NodeInformation {
        node_type: NodeType::Storage,
        address: address(),
        id: Some(storage()),
        state: NodeState::Running,
        id_timestamp: Some(1.25),
    }];
    is(
        "93 01 06 92 cb3ff8000000000000 91 95 d40401 92c4093132372e302e302e31cd2711 01 d40302 \
         cb3ff4000000000000",
        1,
        NotifyNodeInformation { timestamp: 1.5, nodes },
    );
    let row = vec![Cell { node: storage(), state: CellState::UpToDate }];
    let rows = vec![row.clone(), row];
    let table = SendPartitionTable { table: Some(TableId(1)), replicas: 0, rows };
    is("93 02 0a 93 01 00 92 91 92 01 d40001 91 92 01 d40001", 2, table);
    let running = NotifyClusterInformation { state: ClusterState::Running };
    is("93 07 2d 91 d40102", 7, running);
}

#[test]
fn objects_and_commits_are_as_neo_writes_them() {
    let (oid, tid) = (Oid(0), Tid(3 << 56));
    let ask = AskObject { oid, at: None, before: Some(tid) };
    is("93 05 20 93 c4080000000000000000 c0 c4080300000000000000", 5, ask);
    let answer = AnswerObject {
        oid,
        serial: tid,
        next_serial: None,
        compression: Some(0),
        checksum: Checksum([0x17; 20]),
        data: b"data",
        data_serial: None,
    };
    is(
        "93 05 cd8020 97 c4080000000000000000 c4080300000000000000 c0 00 \
         c4141717171717171717171717171717171717171717 c40464617461 c0",
        5,
        answer,
    );
    let error = Error { code: ErrorCode::OidNotFound, message: "msg" };
    is("93 05 cd8000 92 03 c4036d7367", 5, error);
    let finish = AskFinishTransaction {
        ttid: tid,
        oids: vec![oid],
        deleted: Vec::new(),
        checked: Vec::new(),
        pack: None,
    };
    is("93 09 14 95 c4080300000000000000 91 c4080000000000000000 90 90 c0", 9, finish);
}

#[test]
fn errors_say_which_message_and_which_argument() {
    let error = |digits| {
        let bytes = bytes_of(digits);
        let Ok(Scan::Complete(frame)) = Scanner::default().scan(&bytes) else { panic!("{digits}") };
        Packet::decode(frame).unwrap_err().to_string()
    };
    for (digits, text) in [
        (
            "93 05 20 93 c4080000000000000000 c0 c40703000000000000",
            "AskObject: before is 7 bytes at byte 15, not a tid of 8 bytes or nil",
        ),
        ("93 05 20 92 c0 c0", "AskObject: arguments is an array of 2 at byte 3, not an array of 3"),
        (
            "93 01 06 92 cb3ff8000000000000 91 95 d40401 c0 01 d40304 c0",
            "NotifyNodeInformation: nodes[0].state is the number 4 at byte 20, not a node state",
        ),
        (
            "93 00 0a 93 01 00 92 90 91 93 01 d40001 c0",
            "SendPartitionTable: rows[1][0] is an array of 3 at byte 9, not an array of 2",
        ),
        ("93 00 1c c0", "AskStoreObject: arguments is nil at byte 3, not an array of 7"),
        ("93 00 4a 90", "no message of NEO protocol 5 has the code 0x004a"),
        ("93 00 cd8003 90", "no message of NEO protocol 5 has the code 0x8003"),
        ("93 c0 02 90", "not a message of NEO: the id is nil at byte 1, not an id of 32 bits"),
        (
            "93 00 ce00010000 90",
            "not a message of NEO: the code is the number 65536 at byte 2, not a code of 16 bits",
        ),
        ("93 00 02 91 c0", "Ping: arguments is an array of 1 at byte 3, not an array of 0"),
    ] {
        assert_eq!(error(digits), text);
    }
}

/// A small message of each kind.
fn samples() -> impl Iterator<Item = (u32, Message<'static>)> {
    Message::ALL.iter().map(|(code, ..)| {
        let small = (1..10_000_u32).find_map(|seed| {
            let choices: Vec<u8> = (1..200_u32)
                .map(|at| (at.wrapping_mul(seed).wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect();
            let message = Message::sample(*code, &mut Choices::new(&choices)).unwrap();
            let length = encoded(0, message.clone()).len();
            (length < 250).then_some((seed % 300, message))
        });
        small.unwrap()
    })
}

#[test]
fn messages_are_as_neo_wrote_them() {
    let mut names = Vec::new();
    for line in MESSAGES.lines().filter(|line| !line.starts_with('#')) {
        let (digits, text) = line.split_once(' ').unwrap();
        let bytes = bytes_of(digits);
        let packet = decoded(&bytes);
        assert_eq!(format!("{packet:?}"), text);
        names.push(packet.message.name());
        assert_eq!(encoded(packet.id, packet.message), bytes, "{text}");
    }
    assert!(Message::ALL.iter().all(|(_, name, _)| names.contains(name)));
}

/// NEO/py in a process.
struct Neoppod {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    table: String,
}

static SKIPPED: Once = Once::new();

impl Neoppod {
    /// `None`, with a loud line, without a checkout.
    fn start() -> Option<Neoppod> {
        let variables = (std::env::var("NEOPPOD"), std::env::var("NEOPPOD_PYTHON"));
        let (Ok(checkout), Ok(python)) = variables else {
            SKIPPED.call_once(|| {
                // Not captured, as `eprintln!` is.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: the NEO codec is not compared with NEO/py. Set NEOPPOD to a \
                     checkout of it, and NEOPPOD_PYTHON to a Python with msgpack and six"
                );
            });
            return None;
        };
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/neoppod.py");
        let mut process = Command::new(python)
            .args([program, &checkout])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut table = String::new();
        output.read_line(&mut table).unwrap();
        Some(Neoppod { process, input, output, table })
    }

    /// Decodes a message and encodes it again.
    fn again(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        self.input.write_all(&(message.len() as u32).to_be_bytes()).unwrap();
        self.input.write_all(message).unwrap();
        self.input.flush().unwrap();
        let mut head = [0; 5];
        self.output.read_exact(&mut head).unwrap();
        let [failed, length @ ..] = head;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.output.read_exact(&mut answer).unwrap();
        match failed {
            0 => Ok(answer),
            _ => Err(String::from_utf8_lossy(&answer).into_owned()),
        }
    }
}

impl Drop for Neoppod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn neo_decodes_and_encodes_every_message_as_we_do() {
    let Some(mut neo) = Neoppod::start() else { return };
    let mut checked = 0;
    for round in 0..40_u32 {
        for (code, name, _) in Message::ALL {
            let bytes: Vec<u8> = (1..600_u32)
                .map(|at| (at.wrapping_mul(2 * round + 1).wrapping_mul(0x9e37_79b1) >> 11) as u8)
                .map(|byte| if byte == 255 && round % 8 != 0 { 17 } else { byte })
                .collect();
            let bytes = &bytes[..(bytes.len() * round as usize / 39)];
            let message = Message::sample(*code, &mut Choices::new(bytes)).unwrap();
            let ours = encoded(round.wrapping_mul(0x0765_4321), message.clone());
            let theirs = neo.again(&ours).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(theirs == ours, "NEO/py writes {name} in another way: {message:?}");
            checked += 1;
        }
    }
    assert_eq!(checked, 40 * 111);
}

#[test]
fn the_table_is_the_one_of_neo() {
    let Some(neo) = Neoppod::start() else { return };
    let greeting: String = GREETING.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(neo.table.contains(&format!("\"greeting\": \"{greeting}\"")), "{}", neo.table);
    let names: BTreeMap<u16, &str> =
        Message::ALL.iter().map(|(code, name, _)| (*code, *name)).collect();
    for (code, name, kind) in Message::ALL {
        let answer = match kind {
            Kind::Request => Some(names[&(code | 0x8000)]),
            Kind::Command => Some("Error"),
            Kind::Notification | Kind::Answer => None,
        };
        let message = Message::sample(*code, &mut Choices::new(&[])).unwrap();
        let answer = answer.map_or("null".to_owned(), |answer| format!("\"{answer}\""));
        let ignored = !message.outlives_connection();
        let entry = format!("\"{code}\": [\"{name}\", {answer}, {ignored}]");
        assert!(neo.table.contains(&entry), "no {entry} in {}", neo.table);
    }
    assert_eq!(neo.table.matches(": [\"").count(), Message::ALL.len());
}

#[test]
fn the_recorded_messages_are_those_of_neo() {
    let Some(mut neo) = Neoppod::start() else { return };
    let mut lines = String::from("# Messages as NEO/py encodes them, and what they decode to.\n");
    for (id, message) in samples() {
        let bytes = neo.again(&encoded(id, message)).unwrap();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{digits} {:?}\n", decoded(&bytes));
    }
    if std::env::var_os("NEOPPOD_RECORD").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt"), lines).unwrap();
    } else {
        assert!(lines == MESSAGES, "record tests/messages.txt again, with NEOPPOD_RECORD=1");
    }
}
