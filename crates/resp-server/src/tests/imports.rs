//! What is taken over from files of Redis and Valkey.

use std::sync::Arc;

use zodium_disk::{Disk, MemoryDisk};
use zodium_types::Tid;

use super::log::{OneCommit, open_with};
use super::{new_server, with};
use crate::LeftOut;

/// A moment in 2001, and one in 2100.
const PAST: u64 = 1_000_000_000_000;
const FUTURE: u64 = 4_102_444_800_000;

/// An append-only file of commands, one a line.
fn commands(lines: &str) -> Vec<u8> {
    let mut file = String::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        file += &format!("*{}\r\n", words.len());
        words.iter().for_each(|word| file += &format!("${}\r\n{word}\r\n", word.len()));
    }
    file.into_bytes()
}

/// An RDB file of version 11 without a sum.
fn rdb(body: &[u8]) -> Vec<u8> {
    [b"REDIS0011", body, b"\xff\0\0\0\0\0\0\0\0"].concat()
}

#[test]
fn what_is_behind_an_rdb_file_and_no_command_is_left_out() {
    let body = rdb(b"\x00\x01k\x01v");
    for (behind, foreign_at) in
        [(&b""[..], None), (b"\n", Some(23)), (b"0f3a-mark", Some(23)), (b"#TS:1\r\n", None)]
    {
        let server = new_server(None);
        let left = server.import_rdb(&*[&body, behind].concat()).unwrap();
        assert_eq!(left, LeftOut { foreign_at, ..LeftOut::default() }, "{behind:?}");
    }
}

#[test]
fn keys_expire_at_the_end_of_an_import_only() {
    let due = [b"\xfc", &PAST.to_le_bytes()[..], b"\x00\x04base\x014"].concat();
    for (lines, question, expected) in [
        ("SET k v PXAT PAST\nPEXPIREAT k FUTURE", "GET k", "$1 v"),
        ("SET k 5 PXAT PAST\nINCR k\nPEXPIREAT k FUTURE", "GET k", "$1 6"),
        ("SET k 5\nPEXPIREAT k PAST\nINCR k\nPERSIST k", "GET k", "$1 6"),
        ("SET k 5\nGETEX k PXAT PAST\nINCR k\nPERSIST k", "GET k", "$1 6"),
        ("HSET k a 1\nPEXPIREAT k PAST\nHSET k b 2\nPEXPIREAT k FUTURE", "HLEN k", ":2"),
        ("SET old v PXAT PAST\nRENAME old k\nPERSIST k", "GET k", "$1 v"),
        ("SET old v PXAT PAST\nCOPY old k\nPERSIST k", "GET k", "$1 v"),
        ("MULTI\nSET k v PXAT PAST\nPERSIST k\nEXEC", "GET k", "$1 v"),
        (
            "SET k 1 PXAT PAST\nEVAL return{redis.call('INCR',KEYS[1])} 1 k\nPERSIST k",
            "GET k",
            "$1 2",
        ),
        ("RESTORE k PAST \0\x01v\x0b\0\0\0\0\0\0\0\0\0 ABSTTL\nPERSIST k", "GET k", "$1 v"),
        ("INCR base\nPEXPIREAT base FUTURE", "GET base", "$1 5"),
        ("RPUSH k 1\nPEXPIREAT k PAST\nRPUSH k 2", "EXISTS k", ":0"),
        ("SET base v", "GET base", "$1 v"),
        ("SET k v\nEXPIRE k 1000", "TTL k", ":1000"),
        ("PING", "EXISTS base", ":0"),
    ] {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let open = || open_with(&disk, "no", OneCommit(Tid(1)));
        let server = open();
        let lines = lines.replace("PAST", &PAST.to_string()).replace("FUTURE", &FUTURE.to_string());
        server.import_rdb(&*rdb(&due)).unwrap();
        server.import_commands(&*commands(&lines)).unwrap();
        let kept = u64::from(!expected.ends_with(":0"));
        assert_eq!(server.finish_import().unwrap(), kept, "{lines}");
        with(open(), |running| async move {
            running.connect().expect(&[(question, expected)]).await;
        });
    }
}

#[test]
fn keys_whose_time_is_past_are_not_sent_to_a_running_server() {
    let server = new_server(None);
    server.import_commands(&*commands(&format!("SET k v PXAT {PAST}\nSET other v"))).unwrap();
    let mut keys = Vec::new();
    server.each_dumped(&mut |dumped| {
        keys.push(dumped.key.to_owned());
        true
    });
    assert_eq!(keys, [b"other"]);
}

#[test]
fn functions_and_messages_of_shards_are_left_out() {
    let lines = "FUNCTION LOAD source\nSET a 1\nMULTI\nSPUBLISH c m\nFUNCTION FLUSH\nSET b 2\nEXEC";
    let server = new_server(None);
    let left = server.import_commands(&*commands(lines)).unwrap();
    assert_eq!(left, LeftOut { functions: 2, ..LeftOut::default() });
    let left = server.import_rdb(&*[rdb(b"\xf5\x01f"), commands("FUNCTION LOAD f")].concat());
    assert_eq!(left.unwrap().functions, 2);
    with(server, |running| async move {
        running.connect().expect(&[("GET a", "$1 1"), ("GET b", "$1 2")]).await;
    });
}

#[test]
fn a_command_or_transaction_that_the_end_cuts_off_is_left_out() {
    let (first, base) = (commands("SET a 1"), rdb(b""));
    let at = |length: usize| Some(length as u64);
    for (end, expected) in [
        (b"".to_vec(), None),
        (commands("SET a 2\nSET a 3")[..50].to_vec(), Some(27)),
        (commands("MULTI\nSET a 2"), Some(0)),
        (commands("MULTI\nSET a 2\nEXEC")[..40].to_vec(), Some(0)),
    ] {
        let expected = expected.map(|place: usize| place + first.len());
        let file = [&first[..], &end].concat();
        let server = new_server(None);
        let left = server.import_commands(&*file).unwrap();
        assert_eq!(left.cut_at, expected.and_then(at), "{}", end.escape_ascii());
        let file = [&base[..], &file].concat();
        let left = server.import_rdb(&*file).unwrap();
        assert_eq!(left.cut_at, expected.and_then(|place| at(place + base.len())));
    }
}

#[test]
fn a_damaged_command_is_refused_and_its_place_is_told() {
    let first = commands("SET a 1");
    for (damaged, what) in [
        ("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nabc\r\n", "an argument has another length"),
        ("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb  ", "an argument has another length"),
        ("*3\r\n$3\r\nSET\r\n+1\r\na\r\n$1\r\nb\r\n", "expected '$', got '+'"),
        ("*x\r\n", "invalid multibulk length"),
        ("*0\r\n", "it has no arguments"),
        ("SET a 2\r\n", "expected '*', got 'S'"),
        ("\r\n", "expected '*', got '\\r'"),
        ("\0\0\0", "expected '*', got '\\x00'"),
    ] {
        let base = rdb(b"");
        let file = [&base[..], &first, damaged.as_bytes(), &first].concat();
        let server = new_server(None);
        let in_base = server.import_rdb(&*file).unwrap_err().to_string();
        let error = server.import_commands(&file[base.len()..]).unwrap_err().to_string();
        for (error, position) in [(error, first.len()), (in_base, base.len() + first.len())] {
            let place = format!("damaged: no command begins at byte {position} (");
            assert!(error.starts_with(&place) && error.contains(what), "{error}, and not {what}");
            assert!(error.contains("valkey-check-aof"), "{error}");
        }
    }
}

#[test]
fn a_refused_command_or_database_is_told_with_its_place_and_what_to_do() {
    let server = new_server(None);
    let refused = |file: &[u8]| server.import_commands(file).unwrap_err().to_string();
    let transaction = commands("SET a 1\nMULTI\nGEOADD k 1 2 m\nEXEC");
    let error = refused(&transaction);
    let place = transaction.windows(2).position(|bytes| bytes == b"*5").unwrap();
    assert!(error.starts_with(&format!("the command at byte {place} is unknown: ")), "{error}");
    assert!(error.contains("'GEOADD', with args beginning with: 'k' '1' '2' 'm'. BGREWRITEAOF"));
    let error = refused(&commands("SET a 1\nSELECT 20"));
    assert!(error.starts_with("SELECT at byte 27 is of database 20; this"), "{error}");
    let error = server.import_rdb(&*rdb(b"\xfe\x14\0\x01k\x01v")).unwrap_err().to_string();
    assert!(error.starts_with("the key 'k' at byte 16 is of database 20; this"), "{error}");
    assert!(error.contains("Move its keys"), "{error}");
}
