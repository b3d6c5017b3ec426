//! What a session does between two messages: each test decides what happens next, where the
//! simulation leaves it to chance.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use bytes::BytesMut;
use zodium_disk::{FaultyDisk, MemoryDisk};
use zodium_net::Limits;
use zodium_pickle::Value;
use zodium_simulation::stage::{Said, Speaker, Stage, StageOptions};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId, encode_request};

fn start(options: StageOptions) -> Stage {
    Stage::start(&FaultyDisk::new(MemoryDisk::new()), options).unwrap()
}

fn stage() -> Stage {
    start(StageOptions::default())
}

fn speaker(stage: &Stage, worker: usize) -> Speaker {
    stage.register(worker, false).unwrap()
}

/// The value of a reply that has arrived.
fn value(speaker: &mut Speaker, id: &MessageId) -> Value<'static> {
    speaker.answer(id).expect("it is answered").expect("it is no exception")
}

/// The name of the exception in a reply.
fn exception(speaker: &mut Speaker, id: &MessageId) -> String {
    speaker.answer(id).expect("it is answered").expect_err("it is an exception")
}

/// Votes on a transaction; returns the server's answer.
fn vote(stage: &Stage, speaker: &mut Speaker, name: u64) -> Value<'static> {
    let vote = speaker.ask("vote", [name.into()]).unwrap();
    stage.settle();
    value(speaker, &vote)
}

/// Asserts that a vote reports no conflict and no object changed by the server.
fn assert_passed(vote: &Value<'_>) {
    assert_eq!(vote.as_sequence(), Some([].as_slice()));
}

fn commit(stage: &Stage, speaker: &mut Speaker, name: u64, objects: &[(Oid, Tid, &[u8])]) -> Tid {
    speaker.store(name, objects).unwrap();
    assert_passed(&vote(stage, speaker, name));
    let finish = speaker.ask("tpc_finish", [name.into()]).unwrap();
    stage.settle();
    value(speaker, &finish).as_tid().unwrap()
}

#[test]
fn a_client_that_registers_is_told_of_all_that_others_have_heard_of() {
    let stage = stage();
    let mut writer = speaker(&stage, 0);
    // Commits are posted to workers with sessions.
    let _present = speaker(&stage, 1);
    writer.store(1, &[(Oid(1), Tid::ZERO, b"one")]).unwrap();
    vote(&stage, &mut writer, 1);
    let finish = writer.ask("tpc_finish", [1.into()]).unwrap();
    stage.run(0);
    assert_eq!(stage.write(), 1);
    stage.run_notices(0);
    stage.run(0);
    let tid = value(&mut writer, &finish);
    // The other worker has not handled its notices.
    let mut newcomer = stage.connect(1).unwrap();
    let asked = newcomer.ask_to_register(false).unwrap();
    stage.run(1);
    assert_eq!(value(&mut newcomer, &asked), tid);
}

#[test]
fn nothing_is_read_from_a_client_while_its_data_are_put_aside() {
    let stage = stage();
    let mut client = speaker(&stage, 0);
    let large = vec![7; 9 << 20];
    client.store(1, &[(Oid(1), Tid::ZERO, &large), (Oid(2), Tid::ZERO, &large)]).unwrap();
    let ping = client.ask("ping", []).unwrap();
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "more than 16 MiB are put aside");
    assert_eq!(client.answer(&ping), None);
    stage.run_job();
    stage.run(0);
    assert_eq!(value(&mut client, &ping), Value::None);
    assert_passed(&vote(&stage, &mut client, 1));
}

#[test]
fn nothing_is_read_from_a_client_while_its_blob_is_on_its_way_into_the_transaction() {
    let stage = start(StageOptions { blob_directory: Some("blobs"), ..StageOptions::default() });
    let mut client = speaker(&stage, 0);
    client.begin(1).unwrap();
    client.tell("storeBlobStart", []).unwrap();
    client.tell("storeBlobChunk", [Value::Bytes(b"the blob".into())]).unwrap();
    let record = Value::Bytes(b"the record".into());
    let end = [Oid(1).into(), Tid::ZERO.into(), record, 1.into()];
    client.tell("storeBlobEnd", end).unwrap();
    let vote = client.ask("vote", [1.into()]).unwrap();
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "the chunk is being written");
    assert_eq!(client.answer(&vote), None);
    stage.settle();
    assert_passed(&value(&mut client, &vote));
}

#[test]
fn a_transaction_that_cannot_be_committed_any_more_frees_the_locks_of_its_last_vote() {
    let stage = stage();
    let (mut client, mut other) = (speaker(&stage, 0), speaker(&stage, 1));
    let first = commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"first")]);
    let second = commit(&stage, &mut other, 1, &[(Oid(1), first, b"second")]);
    client.store(2, &[(Oid(1), first, b"conflicts")]).unwrap();
    let to_resolve = vote(&stage, &mut client, 2);
    assert_eq!(to_resolve.as_sequence().map(<[_]>::len), Some(1));
    assert_eq!(stage.storage().commit_status().locking, 1, "until the client has resolved it");
    client.tell("undoa", ["no undo id".into(), 2.into()]).unwrap();
    stage.settle();
    assert_eq!(stage.storage().commit_status().locking, 0);
    commit(&stage, &mut other, 2, &[(Oid(1), second, b"third")]);
    let vote = client.ask("vote", [2.into()]).unwrap();
    stage.settle();
    assert!(exception(&mut client, &vote).contains("UndoError"));
}

#[test]
fn a_vote_that_is_given_up_while_it_is_checked_frees_its_locks_at_once() {
    let stage = stage_with_blobs();
    let mut client = speaker(&stage, 0);
    store_blob(&mut client, 1, Oid(1));
    stage.settle();
    client.ask("vote", [1.into()]).unwrap();
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "blobs are checked off the worker");
    client.ask("tpc_abort", [1.into()]).unwrap();
    stage.run(0);
    assert_eq!(stage.storage().commit_status().locking, 0);
    stage.settle();
    commit(&stage, &mut client, 2, &[(Oid(1), Tid::ZERO, b"free")]);
}

#[test]
fn a_finish_that_comes_after_the_timeout_is_not_answered() {
    let timeout = Duration::from_secs(10);
    let options = StageOptions { transaction_timeout: Some(timeout), ..StageOptions::default() };
    let stage = start(options);
    let (mut client, mut other) = (speaker(&stage, 0), speaker(&stage, 1));
    for (speaker, oid) in [(&mut client, Oid(1)), (&mut other, Oid(2))] {
        speaker.store(1, &[(oid, Tid::ZERO, b"data")]).unwrap();
        assert_passed(&vote(&stage, speaker, 1));
    }
    other.ask("tpc_finish", [1.into()]).unwrap();
    stage.run(1);
    stage.let_pass(2 * timeout);
    let finish = client.ask("tpc_finish", [1.into()]).unwrap();
    assert_eq!(stage.write(), 1);
    // With the request the worker finds a commit, and before it the notice of the timeout.
    stage.run(0);
    assert_eq!(client.answer(&finish), None, "nothing was committed");
    stage.settle();
    assert!(client.is_over());
}

/// A client that disconnects while its transaction is in any state.
#[test]
fn a_client_that_is_gone_holds_nothing() {
    for asked in 0..3 {
        let stage = stage();
        let (mut client, mut other) = (speaker(&stage, 0), speaker(&stage, 1));
        client.store(1, &[(Oid(1), Tid::ZERO, b"lost")]).unwrap();
        stage.run(0);
        if asked > 0 {
            vote(&stage, &mut client, 1);
        }
        if asked > 1 {
            other.store(1, &[(Oid(1), Tid::ZERO, b"waits")]).unwrap();
            other.ask("vote", [1.into()]).unwrap();
            stage.settle();
            assert_eq!(stage.storage().commit_status().waiting, 1);
            other.hang_up();
            stage.settle();
            assert_eq!(stage.storage().commit_status().waiting, 0);
        }
        client.hang_up();
        stage.settle();
        assert_eq!(stage.storage().commit_status().locking, 0);
    }
}

#[test]
fn loads_from_memory_wait_for_a_client_that_takes_no_answers() {
    const LOADS: usize = 2000;
    let limits = Limits { output_bytes_high: 64 << 10, ..StageOptions::default().limits };
    let stage = start(StageOptions { limits, window: 64 << 10, ..StageOptions::default() });
    let (mut reader, mut writer) = (speaker(&stage, 0), speaker(&stage, 1));
    let first = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, &[1; 1000])]);
    reader.listen().unwrap();
    reader.said.clear();
    reader.load(&[(Oid(1), Tid::MAX); LOADS]);
    stage.run(0);
    let second = commit(&stage, &mut writer, 2, &[(Oid(1), first, &[2; 1000])]);
    let serials = |said: &[Said]| {
        let serial = |said: &Said| match said {
            Said::Answer(_, Ok(revision)) => revision.as_sequence()?.get(1)?.as_tid(),
            _ => None,
        };
        said.iter().filter_map(serial).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    while found.len() < LOADS {
        let before = found.len();
        reader.listen().unwrap();
        found.extend(serials(&reader.said));
        reader.said.clear();
        stage.settle();
        assert!(found.len() > before, "{before} loads are answered, and no more");
    }
    let old = found.iter().take_while(|serial| **serial == first).count();
    assert!(old > 0 && found[old..].iter().all(|serial| *serial == second));
    // What the network and the output may hold, and one reply too many.
    let most = (64 << 10) / 1000 * 2 + 2;
    assert!(old <= most, "{old} loads were answered before any answer was taken");
}

#[test]
fn a_connection_has_so_many_iterators_and_no_more_however_they_are_begun() {
    let stage = stage();
    let mut client = speaker(&stage, 0);
    let tid = commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    let start =
        |client: &mut Speaker| client.ask("iterator_start", [Value::None, Value::None]).unwrap();
    let started = start(&mut client);
    stage.settle();
    let first = value(&mut client, &started);
    client.ask("iterator_next", [first.clone()]).unwrap();
    for _ in 0..998 {
        start(&mut client);
    }
    stage.settle();
    client.listen().unwrap();
    assert!(client.said.iter().all(|said| !matches!(said, Said::Answer(_, Err(_)))));
    // There is memory for one, when each is requested alone.
    let both = [start(&mut client), start(&mut client)];
    stage.settle();
    value(&mut client, &both[0]);
    assert!(exception(&mut client, &both[1]).contains("ValueError"));
    // Without memory the file is not even read.
    let one_more = start(&mut client);
    stage.run(0);
    assert_eq!(stage.jobs(), 0);
    let records = client.ask("iterator_record_start", [first.clone(), tid.into()]).unwrap();
    stage.settle();
    assert!(exception(&mut client, &one_more).contains("ValueError"));
    assert!(exception(&mut client, &records).contains("ValueError"));
    let freed = value(&mut client, &both[0]);
    client.ask("iterator_gc", [Value::list([freed])]).unwrap();
    let records = client.ask("iterator_record_start", [first, tid.into()]).unwrap();
    stage.settle();
    value(&mut client, &records);
}

#[test]
fn records_are_given_of_the_last_transaction_only() {
    let stage = stage();
    let mut client = speaker(&stage, 0);
    let first = commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    let second = commit(&stage, &mut client, 2, &[(Oid(1), first, b"two")]);
    let started = client.ask("iterator_start", [Value::None, Value::None]).unwrap();
    stage.settle();
    let number = value(&mut client, &started);
    for (tid, other) in [(first, second), (second, first)] {
        client.ask("iterator_next", [number.clone()]).unwrap();
        let wrong = client.ask("iterator_record_start", [number.clone(), other.into()]).unwrap();
        let right = client.ask("iterator_record_start", [number.clone(), tid.into()]).unwrap();
        stage.settle();
        assert_eq!(exception(&mut client, &wrong), "builtins.Exception");
        let records = value(&mut client, &right);
        let record = client.ask("iterator_record_next", [records]).unwrap();
        stage.settle();
        let record = value(&mut client, &record);
        assert_eq!(record.as_sequence().unwrap()[1].as_tid(), Some(tid));
    }
}

#[test]
fn a_read_only_session_may_call_nothing_that_writes() {
    let stage = stage();
    let mut writer = speaker(&stage, 0);
    let tid = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    let mut reader = stage.register(0, true).unwrap();
    for name in [
        "tpc_begin",
        "storea",
        "deleteObject",
        "checkCurrentSerialInTransaction",
        "restorea",
        "undoa",
        "storeBlobStart",
        "storeBlobChunk",
        "storeBlobEnd",
        "storeBlobShared",
        "vote",
        "tpc_finish",
        "tpc_abort",
        "new_oids",
    ] {
        let asked = reader.ask(name, []).unwrap();
        stage.settle();
        assert_eq!(exception(&mut reader, &asked), "ZODB.POSException.ReadOnlyError", "{name}");
    }
    let last = reader.ask("lastTransaction", []).unwrap();
    stage.settle();
    assert_eq!(value(&mut reader, &last), tid.into());
}

/// Two commits of a client of the first worker, which it has been told of. The other worker has not
/// handled its notices.
fn commit_twice(stage: &Stage, writer: &mut Speaker, mut serial: Tid) -> [Tid; 2] {
    [2, 3].map(|name| {
        writer.store(name, &[(Oid(1), serial, b"new")]).unwrap();
        let vote = writer.ask("vote", [name.into()]).unwrap();
        let finish = writer.ask("tpc_finish", [name.into()]).unwrap();
        stage.run(0);
        assert_passed(&value(writer, &vote));
        assert_eq!(stage.write(), 1);
        stage.run_notices(0);
        stage.run(0);
        serial = value(writer, &finish).as_tid().unwrap();
        serial
    })
}

#[test]
fn an_answer_never_lags_behind_what_another_client_was_told() {
    for is_large in [false, true] {
        let stage = stage();
        let (mut writer, mut reader) = (speaker(&stage, 0), speaker(&stage, 1));
        let first = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, b"one")]);
        reader.listen().unwrap();
        reader.said.clear();
        let [second, third] = commit_twice(&stage, &mut writer, first);
        let (asked, expected) = match is_large {
            false => (reader.ask("lastTransaction", []).unwrap(), Value::from(third)),
            true => {
                let label = "x".repeat(100_000);
                let asked = reader.ask("set_client_label", [label.as_str().into()]).unwrap();
                (asked, Value::None)
            }
        };
        stage.run(1);
        reader.listen().unwrap();
        reader.said.retain(|said| !matches!(said, Said::Notice(_)));
        let told = [
            Said::Invalidation(second, vec![Oid(1)]),
            Said::Invalidation(third, vec![Oid(1)]),
            Said::Answer(asked, Ok(expected)),
        ];
        assert_eq!(reader.said, told);
    }
}

/// Its first bytes have arrived before.
#[test]
fn the_answer_to_a_large_request_never_lags_behind_what_was_told_while_it_arrived() {
    let stage = stage();
    let (mut writer, mut reader) = (speaker(&stage, 0), speaker(&stage, 1));
    let first = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    reader.listen().unwrap();
    reader.said.clear();
    let (mut request, label) = (BytesMut::new(), "x".repeat(100_000));
    let label = Value::tuple([label.as_str().into()]);
    encode_request(Encoding::Msgpack, &mut request, 77, "set_client_label", &label).unwrap();
    let (start, rest) = request.split_at(50_000);
    reader.send(start);
    stage.run(1);
    let [second, third] = commit_twice(&stage, &mut writer, first);
    reader.send(rest);
    stage.run(1);
    reader.listen().unwrap();
    reader.said.retain(|said| !matches!(said, Said::Notice(_)));
    let told = [
        Said::Invalidation(second, vec![Oid(1)]),
        Said::Invalidation(third, vec![Oid(1)]),
        Said::Answer(MessageId::Number(77), Ok(Value::None)),
    ];
    assert_eq!(reader.said, told);
}

/// Begins a transaction with one blob, up to the end of the blob.
fn store_blob(client: &mut Speaker, name: u64, oid: Oid) {
    client.begin(name).unwrap();
    client.tell("storeBlobStart", []).unwrap();
    client.tell("storeBlobChunk", [Value::Bytes(b"the blob".into())]).unwrap();
    let record = Value::Bytes(b"the record".into());
    client.tell("storeBlobEnd", [oid.into(), Tid::ZERO.into(), record, name.into()]).unwrap();
}

fn stage_with_blobs() -> Stage {
    start(StageOptions { blob_directory: Some("blobs"), ..StageOptions::default() })
}

#[test]
fn a_client_that_is_gone_while_it_resolves_a_conflict_holds_nothing() {
    let stage = stage();
    let (mut client, mut other) = (speaker(&stage, 0), speaker(&stage, 1));
    let first = commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"first")]);
    commit(&stage, &mut other, 1, &[(Oid(1), first, b"second")]);
    client.store(2, &[(Oid(1), first, b"conflicts")]).unwrap();
    vote(&stage, &mut client, 2);
    assert_eq!(stage.storage().commit_status().locking, 1);
    client.hang_up();
    stage.settle();
    assert_eq!(stage.storage().commit_status().locking, 0);
}

#[test]
fn what_was_read_and_is_not_current_any_more_ends_the_transaction() {
    let stage = stage();
    let (mut client, mut other) = (speaker(&stage, 0), speaker(&stage, 1));
    let first = commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"first")]);
    commit(&stage, &mut other, 1, &[(Oid(1), first, b"second")]);
    client.store(2, &[(Oid(2), Tid::ZERO, b"new")]).unwrap();
    let check = [Oid(1).into(), first.into(), 2.into()];
    client.tell("checkCurrentSerialInTransaction", check).unwrap();
    let vote = client.ask("vote", [2.into()]).unwrap();
    stage.settle();
    assert_eq!(exception(&mut client, &vote), "ZODB.POSException.ReadConflictError");
    assert_eq!(stage.storage().commit_status().locking, 0);
}

#[test]
fn of_a_blob_that_was_given_up_nothing_reaches_the_next_one() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let options = StageOptions { blob_directory: Some("blobs"), ..StageOptions::default() };
    let stage = Stage::start(&disk, options).unwrap();
    let mut client = speaker(&stage, 0);
    let begin = |client: &mut Speaker, name, byte| {
        client.begin(name).unwrap();
        client.tell("storeBlobStart", []).unwrap();
        let chunk = vec![byte; 300 << 10];
        client.tell("storeBlobChunk", [Value::Bytes(chunk.into())]).unwrap();
    };
    begin(&mut client, 1, b'a');
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "the chunk is being written");
    client.ask("tpc_abort", [1.into()]).unwrap();
    begin(&mut client, 2, b'b');
    stage.run(0);
    stage.run_job();
    stage.run(0);
    let record = Value::Bytes(b"the record".into());
    client.tell("storeBlobEnd", [Oid(1).into(), Tid::ZERO.into(), record, 2.into()]).unwrap();
    stage.run(0);
    stage.settle();
    vote(&stage, &mut client, 2);
    client.ask("tpc_finish", [2.into()]).unwrap();
    stage.settle();
    let is_blob = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "blob");
    let blobs: Vec<_> = disk.files().paths().into_iter().filter(is_blob).collect();
    let [blob] = &blobs[..] else { panic!("{blobs:?}") };
    assert!(disk.files().bytes(blob).unwrap() == vec![b'b'; 300 << 10]);
}

/// The quota has room for one of them.
#[test]
fn a_vote_that_was_given_up_when_it_had_just_passed_holds_nothing() {
    let stage = start(StageOptions {
        blob_directory: Some("blobs"),
        quota_bytes: Some(300_000),
        ..StageOptions::default()
    });
    let mut client = speaker(&stage, 0);
    let large = vec![7; 200_000];
    for name in 1..4 {
        store_blob(&mut client, name, Oid(1));
        stage.settle();
        let store =
            [Oid(2).into(), Tid::ZERO.into(), Value::Bytes((&large[..]).into()), name.into()];
        client.tell("storea", store).unwrap();
        let vote = client.ask("vote", [name.into()]).unwrap();
        stage.run(0);
        assert_eq!(stage.jobs(), 1, "blobs are checked off the worker");
        // The worker reads the abort before it sees the result of the check.
        client.ask("tpc_abort", [name.into()]).unwrap();
        stage.run_job();
        stage.settle();
        assert_eq!(client.answer(&vote), None);
        let status = stage.storage().commit_status();
        assert_eq!((status.locking, status.voted), (0, 0));
    }
    store_blob(&mut client, 9, Oid(1));
    stage.settle();
    let store = [Oid(2).into(), Tid::ZERO.into(), Value::Bytes((&large[..]).into()), 9.into()];
    client.tell("storea", store).unwrap();
    assert_passed(&vote(&stage, &mut client, 9));
}

#[test]
fn two_blobs_at_once_end_the_transaction() {
    let stage = stage_with_blobs();
    let mut client = speaker(&stage, 0);
    client.begin(1).unwrap();
    for _ in 0..2 {
        client.tell("storeBlobStart", []).unwrap();
        client.tell("storeBlobChunk", [Value::Bytes(b"a part".into())]).unwrap();
    }
    let record = Value::Bytes(b"the record".into());
    client.tell("storeBlobEnd", [Oid(1).into(), Tid::ZERO.into(), record, 1.into()]).unwrap();
    let vote = client.ask("vote", [1.into()]).unwrap();
    stage.settle();
    assert!(exception(&mut client, &vote).contains("StorageTransactionError"));
}

#[test]
fn so_many_requests_may_be_under_way_and_no_more() {
    let stage = stage();
    let mut client = speaker(&stage, 0);
    commit(&stage, &mut client, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    for _ in 0..1500 {
        client.ask("history", [Oid(1).into(), 1.into()]).unwrap();
    }
    let ping = client.ask("ping", []).unwrap();
    stage.run(0);
    assert_eq!(client.answer(&ping), None, "the ping is behind more than are taken at once");
    stage.settle();
    assert_eq!(value(&mut client, &ping), Value::None);
    let histories = client.said.iter().filter(|said| matches!(said, Said::Answer(_, Ok(_))));
    assert!(histories.count() > 1500);
}

#[test]
fn a_load_that_waited_for_the_disk_does_not_overtake_a_commit() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let stage = Stage::start(&disk, StageOptions::default()).unwrap();
    let mut writer = speaker(&stage, 1);
    let first = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    stage.storage().close().unwrap();
    drop(stage);
    // Nothing is in memory, and the first attempt without blocking finds nothing either.
    let disk = FaultyDisk::new(disk.files().after_kill());
    let stage = Stage::start(&disk, StageOptions::default()).unwrap();
    disk.forget_every(1);
    let (mut reader, mut writer) = (speaker(&stage, 0), speaker(&stage, 1));
    reader.load(&[(Oid(1), Tid::MAX)]);
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "the load waits for the disk");
    stage.run_job();
    // The read is done; before the worker sees it, another revision is committed and announced.
    disk.forget_every(0);
    writer.store(2, &[(Oid(1), first, b"two")]).unwrap();
    let vote = writer.ask("vote", [2.into()]).unwrap();
    stage.run(1);
    while stage.jobs() > 0 {
        stage.run_job();
        stage.run(1);
    }
    value(&mut writer, &vote);
    writer.ask("tpc_finish", [2.into()]).unwrap();
    stage.run(1);
    assert_eq!(stage.write(), 1);
    stage.run_notices(0);
    stage.settle();
    reader.listen().unwrap();
    let said: Vec<_> = reader.said.iter().filter(|said| !matches!(said, Said::Notice(_))).collect();
    let [Said::Invalidation(second, oids), Said::Answer(_, Ok(revision))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(oids, &[Oid(1)]);
    let [data, serial, end] = revision.as_sequence().unwrap() else { panic!("{revision:?}") };
    assert_eq!((data.as_bytes(), serial.as_tid()), (Some(b"two".as_slice()), Some(*second)));
    assert_eq!(*end, Value::None);
}

#[test]
fn a_client_that_has_not_introduced_itself_may_send_little_and_call_nothing() {
    let stage = stage();
    let say = |message: &[u8], greeted: bool| {
        let mut client = match greeted {
            true => stage.connect(0).unwrap(),
            false => stage.connect_without_greeting(0).unwrap(),
        };
        client.send(message);
        stage.run(0);
        client.listen().unwrap();
        client.is_over()
    };
    let frame = |length: u32| length.to_be_bytes();
    // A frame that is too long is refused by its length, before any of its bytes arrive.
    assert!(!say(&frame(16), false) && say(&frame(17), false));
    assert!(!say(&frame(64 << 10), true) && say(&frame((64 << 10) + 1), true));
    let mut early = stage.connect(0).unwrap();
    early.ask("lastTransaction", []).unwrap();
    stage.run(0);
    assert!(early.is_over());
    let mut client = speaker(&stage, 0);
    let name = "x".repeat(70_000);
    client.ask("history", [Value::from(name.as_str()), 1.into()]).unwrap();
    stage.run(0);
    assert!(client.is_over(), "the message of a method without data is long");
}

/// The position of a record means another record after a pack. The second of two revisions moves to
/// where the first was, and the next one to where the second was.
#[test]
fn a_load_from_the_disk_that_spans_a_pack_and_a_commit_does_not_say_that_old_data_are_current() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let stage = Stage::start(&disk, StageOptions::default()).unwrap();
    let mut writer = speaker(&stage, 1);
    let first = commit(&stage, &mut writer, 1, &[(Oid(1), Tid::ZERO, b"one")]);
    let second = commit(&stage, &mut writer, 2, &[(Oid(1), first, b"two")]);
    stage.storage().close().unwrap();
    drop(stage);
    let disk = FaultyDisk::new(disk.files().after_kill());
    let stage = Stage::start(&disk, StageOptions::default()).unwrap();
    let (mut reader, mut writer) = (speaker(&stage, 0), speaker(&stage, 1));
    disk.forget_every(1);
    reader.load(&[(Oid(1), Tid::MAX)]);
    stage.run(0);
    assert_eq!(stage.jobs(), 1, "the load waits for the disk");
    stage.run_job();
    disk.forget_every(0);
    assert!(stage.storage().pack(second).unwrap().is_some());
    // The reader's worker handles the notice of the commit before it sees the finished read.
    writer.store(3, &[(Oid(1), second, b"new")]).unwrap();
    let vote = writer.ask("vote", [3.into()]).unwrap();
    stage.run(1);
    while stage.jobs() > 0 {
        stage.run_job();
        stage.run(1);
    }
    assert_passed(&value(&mut writer, &vote));
    writer.ask("tpc_finish", [3.into()]).unwrap();
    stage.run(1);
    assert_eq!(stage.write(), 1);
    stage.run_notices(0);
    stage.settle();
    reader.listen().unwrap();
    let answer = reader.said.iter().find_map(|said| match said {
        Said::Answer(_, Ok(revision)) => revision.as_sequence(),
        _ => None,
    });
    assert_eq!(answer.unwrap()[0].as_bytes(), Some(b"new".as_slice()));
}

/// A client whose vote met a conflict, a client that waits for the same object behind it with its
/// vote, and the object's current serial.
fn refused_and_waiting(stage: &Stage) -> (Speaker, Speaker, MessageId, Tid) {
    let [mut winner, mut refused, mut waiting] = [0, 0, 1].map(|worker| speaker(stage, worker));
    let first = commit(stage, &mut winner, 1, &[(Oid(1), Tid::ZERO, b"first")]);
    winner.store(2, &[(Oid(1), first, b"second")]).unwrap();
    assert_passed(&vote(stage, &mut winner, 2));
    let [refusal, wait] = [&mut refused, &mut waiting].map(|client| {
        client.store(1, &[(Oid(1), first, b"late")]).unwrap();
        let vote = client.ask("vote", [1.into()]).unwrap();
        stage.settle();
        vote
    });
    let finish = winner.ask("tpc_finish", [2.into()]).unwrap();
    stage.settle();
    let second = value(&mut winner, &finish).as_tid().unwrap();
    let conflicts = value(&mut refused, &refusal);
    assert_eq!(conflicts.as_sequence().map(<[_]>::len), Some(1), "it is to be resolved");
    refused.ask("tpc_abort", [1.into()]).unwrap();
    stage.settle();
    assert_eq!(waiting.answer(&wait), None, "the lock is kept for the other client");
    (refused, waiting, wait, second)
}

/// The first serial of the conflict that a vote was answered with.
fn serial_in_conflict(vote: &Value<'_>) -> Option<Tid> {
    let [conflict] = vote.as_sequence()? else { return None };
    conflict.entry("serials")?.as_sequence()?.first()?.as_tid()
}

#[test]
fn a_client_that_tries_again_after_a_conflict_is_the_next_to_commit() {
    let stage = stage();
    let (mut refused, mut waiting, wait, second) = refused_and_waiting(&stage);
    let third = commit(&stage, &mut refused, 2, &[(Oid(1), second, b"third")]);
    // Only now the other one is told of a conflict, with the revision that it has to load.
    assert_eq!(serial_in_conflict(&value(&mut waiting, &wait)), Some(third));
}

#[test]
fn a_client_that_comes_back_with_other_objects_frees_the_lock_at_once() {
    let stage = stage();
    let (mut refused, mut waiting, wait, second) = refused_and_waiting(&stage);
    refused.store(2, &[(Oid(2), Tid::ZERO, b"other")]).unwrap();
    assert_passed(&vote(&stage, &mut refused, 2));
    assert_eq!(serial_in_conflict(&value(&mut waiting, &wait)), Some(second));
}

#[test]
fn a_client_that_does_not_come_back_delays_the_next_one_for_milliseconds() {
    let stage = stage();
    let (mut refused, mut waiting, wait, second) = refused_and_waiting(&stage);
    stage.let_pass(Duration::from_millis(10));
    assert_eq!(stage.write(), 0, "the log writer ends it");
    stage.settle();
    assert_eq!(serial_in_conflict(&value(&mut waiting, &wait)), Some(second));
    waiting.ask("tpc_abort", [1.into()]).unwrap();
    stage.settle();
    // It may come later as any other client; the lock is kept for the one that waited.
    refused.store(2, &[(Oid(1), second, b"late")]).unwrap();
    let late = refused.ask("vote", [2.into()]).unwrap();
    stage.settle();
    assert_eq!(refused.answer(&late), None);
    let third = commit(&stage, &mut waiting, 2, &[(Oid(1), second, b"third")]);
    assert_eq!(serial_in_conflict(&value(&mut refused, &late)), Some(third));
    // It came too late, so its next conflict frees the lock at once.
    refused.ask("tpc_abort", [2.into()]).unwrap();
    stage.settle();
    assert_eq!(stage.storage().commit_status().locking, 0);
}

#[test]
fn a_client_that_is_gone_after_a_conflict_delays_no_other() {
    let stage = stage();
    let (refused, mut waiting, wait, second) = refused_and_waiting(&stage);
    refused.hang_up();
    stage.settle();
    assert_eq!(serial_in_conflict(&value(&mut waiting, &wait)), Some(second));
}
