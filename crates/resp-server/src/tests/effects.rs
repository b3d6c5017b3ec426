//! What a command has changed is in the log; a command that changes nothing is not.

use zodium_keyspace::now;
use zodium_resp::OwnedRequest;

use super::log::answers;
use super::{Peer, served};
use crate::Server;
use crate::commands::{find, flags, named};

const KEYS: [&str; 12] = [
    "SET s v",
    "SET n 1",
    "SET e v EX 100000",
    "RPUSH l a b",
    "SADD m a",
    "ZADD z 1 a",
    "HSET h f 1",
    "XADD x 0-9 f v\r\nXADD x 1-1 f v\r\nXADD x 2-1 f v",
    "XGROUP CREATE x g 0\r\nXREADGROUP GROUP g c COUNT 2 STREAMS x >",
    // Pending, and not there any more.
    "XDEL x 0-9",
    "XGROUP CREATE x end $",
    "XGROUP CREATECONSUMER x end c",
];

/// What all keys have, and what the log has of them beside their values.
const QUESTION: &str = "DBSIZE\r\nTYPE d\r\nGET d\r\nGET t\r\nGET s\r\nGET n\r\nPEXPIRETIME s\r\n\
     PEXPIRETIME e\r\nLRANGE l 0 -1\r\nLRANGE d 0 -1\r\nSMEMBERS m\r\nSMEMBERS d\r\n\
     ZRANGE z 0 -1 WITHSCORES\r\nZRANGE d 0 -1 WITHSCORES\r\nHGETALL h\r\nXRANGE x - +\r\n\
     XINFO STREAM x\r\nXINFO GROUPS x\r\nXPENDING x g\r\n\
     EVAL \"local all = {} for i, each in ipairs(redis.call('XPENDING', 'x', 'g', '-', '+', 9)) \
     do all[i] = each[1] .. each[2] .. each[4] end return all\" 0";

/// Commands that change nothing, and such of the same name that do.
const COMMANDS: &[(&str, &str)] = &[
    ("SET s w NX", "SET s w"),
    ("SETNX s w", "SETNX t w"),
    ("SETEX s 0 w", "SETEX s 100000 w"),
    ("PSETEX s 0 w", "PSETEX s 100000000 w"),
    ("GETSET l w", "GETSET s w"),
    ("GETDEL none", "GETDEL s"),
    ("GETEX s", "GETEX e PERSIST"),
    ("MSET s", "MSET s w"),
    ("MSETNX s w t w", "MSETNX t w"),
    ("INCR s", "INCR n"),
    ("DECR s", "DECR n"),
    ("INCRBY s 2", "INCRBY n 2"),
    ("DECRBY s 2", "DECRBY n 2"),
    ("INCRBYFLOAT s 2", "INCRBYFLOAT n 0.5"),
    ("APPEND l w", "APPEND s w"),
    ("SETRANGE s 0 \"\"", "SETRANGE s 1 w"),
    ("SETBIT s 0 0", "SETBIT s 0 1"),
    ("BITOP NOT d none", "BITOP NOT d n"),
    ("BITFIELD s GET u8 0", "BITFIELD s SET u8 0 65"),
    ("DEL none", "DEL s"),
    ("UNLINK none", "UNLINK s"),
    ("COPY none d", "COPY s d"),
    ("RESTORE s 0 x", r#"RESTORE d 0 "\x00\x05value\x0b\x00\xe8)|K<5r\xe7""#),
    ("MOVE none 1", "MOVE s 1"),
    ("RENAME none d", "RENAME s d"),
    ("RENAMENX s n", "RENAMENX s d"),
    ("EXPIRE e 1 GT", "EXPIRE s 100000"),
    ("PEXPIRE e 1 GT", "PEXPIRE s 100000000"),
    ("EXPIREAT e 99999999999 LT", "EXPIREAT s 99999999999"),
    ("PEXPIREAT e 99999999999999 LT", "PEXPIREAT s 99999999999999"),
    ("PERSIST s", "PERSIST e"),
    ("SORT none STORE d", "SORT l ALPHA STORE d"),
    ("HSET s f 2", "HSET h f 2"),
    ("HMSET s f 2", "HMSET h f 2"),
    ("HSETNX h f 2", "HSETNX h g 2"),
    ("HDEL h none", "HDEL h f"),
    ("HINCRBY h f x", "HINCRBY h f 2"),
    ("HINCRBYFLOAT h f x", "HINCRBYFLOAT h f 0.5"),
    ("LPUSH s c", "LPUSH l c"),
    ("RPUSH s c", "RPUSH l c"),
    ("LPUSHX none c", "LPUSHX l c"),
    ("RPUSHX none c", "RPUSHX l c"),
    ("LPOP l 0", "LPOP l"),
    ("RPOP l 0", "RPOP l 2"),
    ("LSET l 9 c", "LSET l 0 c"),
    ("LTRIM l 0 -1", "LTRIM l 1 -1"),
    ("LTRIM l 0 9", "LTRIM l 5 9"),
    ("LINSERT l BEFORE none c", "LINSERT l BEFORE a c"),
    ("LREM l 0 none", "LREM l 0 a"),
    ("LREM l -1 none", "LREM l -1 a"),
    ("LMOVE none l LEFT LEFT", "LMOVE l d LEFT LEFT"),
    ("RPOPLPUSH none l", "RPOPLPUSH l l"),
    ("LMPOP 1 none LEFT", "LMPOP 1 l LEFT"),
    ("BLPOP none 0.001", "BLPOP l 1"),
    ("BRPOP none 0.001", "BRPOP l 1"),
    ("BLMOVE none l LEFT LEFT 0.001", "BLMOVE l d LEFT LEFT 1"),
    ("BRPOPLPUSH none l 0.001", "BRPOPLPUSH l d 1"),
    ("BLMPOP 0.001 1 none LEFT", "BLMPOP 1 1 l LEFT"),
    ("SADD m a", "SADD m b"),
    ("SREM m none", "SREM m a"),
    ("SMOVE m d none", "SMOVE m d a"),
    ("SPOP m 0", "SPOP m"),
    ("SINTERSTORE d m none", "SINTERSTORE d m m"),
    ("SUNIONSTORE d none", "SUNIONSTORE d m"),
    ("SDIFFSTORE d m m", "SDIFFSTORE d m none"),
    ("ZADD z 1 a", "ZADD z 2 a"),
    ("ZADD z XX 1 none", "ZADD z XX 3 a"),
    ("ZADD z GT 0 a", "ZADD z GT 2 a"),
    ("ZINCRBY z 0 a", "ZINCRBY z 1 a"),
    ("ZREM z none", "ZREM z a"),
    ("ZPOPMIN z 0", "ZPOPMIN z"),
    ("ZPOPMAX z 0", "ZPOPMAX z"),
    ("BZPOPMIN none 0.001", "BZPOPMIN z 1"),
    ("BZPOPMAX none 0.001", "BZPOPMAX z 1"),
    ("ZMPOP 1 none MIN", "ZMPOP 1 z MIN"),
    ("BZMPOP 0.001 1 none MIN", "BZMPOP 1 1 z MIN"),
    ("ZRANGESTORE d none 0 -1", "ZRANGESTORE d z 0 -1"),
    ("ZREMRANGEBYSCORE z 5 6", "ZREMRANGEBYSCORE z 1 1"),
    ("ZREMRANGEBYLEX z [x [y", "ZREMRANGEBYLEX z [a [a"),
    ("ZREMRANGEBYRANK z 5 6", "ZREMRANGEBYRANK z 0 0"),
    ("ZUNIONSTORE d 1 none", "ZUNIONSTORE d 1 z"),
    ("ZINTERSTORE d 1 none", "ZINTERSTORE d 1 z"),
    ("ZDIFFSTORE d 1 none", "ZDIFFSTORE d 1 z"),
    ("XADD x 1-0 f w", "XADD x 3-1 f w"),
    ("XDEL x 9-9", "XDEL x 1-1"),
    ("XTRIM x MAXLEN 100", "XTRIM x MAXLEN 1"),
    ("XSETID x 0-1", "XSETID x 9-9"),
    ("XREADGROUP GROUP end c STREAMS x >", "XREADGROUP GROUP g c STREAMS x >"),
    ("XREADGROUP GROUP end c STREAMS x 0", "XREADGROUP GROUP g c STREAMS x 0"),
    ("XREADGROUP GROUP g c STREAMS x 1-1", "XREADGROUP GROUP end newcomer STREAMS x >"),
    ("XREADGROUP GROUP end c STREAMS x 0", "XREADGROUP GROUP g c NOACK STREAMS x >"),
    ("XACK x g 5-0", "XACK x g 1-1"),
    ("XCLAIM x g c 0 9-9", "XCLAIM x g newcomer 0 9-9"),
    ("XCLAIM x g c 100000 1-1", "XCLAIM x g c 0 1-1"),
    ("XCLAIM x g c 0 9-9 LASTID 1-0", "XCLAIM x g c 0 9-9 LASTID 7-7"),
    ("XCLAIM x g c 0 9-9 FORCE", "XCLAIM x g c 0 2-1 FORCE"),
    ("XCLAIM x g c 0 9-9", "XCLAIM x g c 100000 0-9"),
    ("XAUTOCLAIM x g c 100000 1-1", "XAUTOCLAIM x g c 0 1-1"),
    ("XAUTOCLAIM x g c 100000 1-1", "XAUTOCLAIM x g c 100000 0"),
    ("XAUTOCLAIM x g c 100000 1-1", "XAUTOCLAIM x g newcomer 100000 1-1"),
    ("XGROUP CREATE x g 0", "XGROUP CREATE x new 0"),
    ("XGROUP CREATECONSUMER x g c", "XGROUP CREATECONSUMER x g newcomer"),
    ("XGROUP DELCONSUMER x g none", "XGROUP DELCONSUMER x g c"),
    ("XGROUP DESTROY x none", "XGROUP DESTROY x g"),
    ("XGROUP SETID x none 0", "XGROUP SETID x g 0"),
    ("FLUSHDB none", "FLUSHDB"),
    ("FLUSHALL none", "FLUSHALL"),
    ("SWAPDB 0 99", "SWAPDB 0 1"),
    ("ZTIE none 7", "ZTIE s 7"),
];

#[test]
fn the_log_gets_what_changes_and_nothing_else() {
    for (without, with) in COMMANDS {
        let steps = async |server: &Server, peer: &mut Peer| {
            let end = || server.log.keeper().map(|keeper| keeper.log.end());
            peer.ask(&KEYS.join("\r\n")).await;
            let (before, minute) = (end(), now() / 60_000);
            let answer = peer.ask(without).await;
            // An answer that comes later.
            let answer = if answer.is_empty() { peer.read().await } else { answer };
            assert!(!answer.is_empty(), "{without}");
            // The log has in which minute a consumer was seen.
            assert!(end() == before || now() / 60_000 != minute, "{without}: {answer}");
            let answer = peer.ask(with).await;
            assert!(end() > before, "{with}: {answer}");
        };
        let [before, again] = answers(steps, QUESTION);
        assert_eq!(again, before, "{without}, {with}");
    }
}

#[test]
fn commands_that_change_nothing_are_not_logged_within_others() {
    let steps = async |server: &Server, peer: &mut Peer| {
        let end = || server.log.keeper().map(|keeper| keeper.log.end());
        peer.ask(&KEYS.join("\r\n")).await;
        let before = end();
        peer.expect(&[
            ("MULTI\r\nZADD z 1 a\r\nSADD m a\r\nEXEC", "+OK +QUEUED +QUEUED *2 :0 :0"),
            ("EVAL \"return redis.call('SADD', 'm', 'a')\" 0", ":0"),
            ("SELECT 9", "+OK"),
            ("FLUSHDB", "+OK"),
            ("SELECT 0", "+OK"),
        ])
        .await;
        assert_eq!(end(), before);
    };
    let [before, again] = answers(steps, QUESTION);
    assert_eq!(again, before);
}

#[test]
fn entries_that_are_gone_are_not_delivered_again() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("XADD x 1-1 a b", "$3 1-1"),
            ("XGROUP CREATE x g 0", "+OK"),
            ("XREADGROUP GROUP g c STREAMS x >", "*1 *2 $1 x *1 *2 $3 1-1 *2 $1 a $1 b"),
            ("XDEL x 1-1", ":1"),
            ("XREADGROUP GROUP g c STREAMS x 0", "*1 *2 $1 x *1 *2 $3 1-1 *-1"),
        ])
        .await;
        assert!(peer.ask("XPENDING x g - + 9").await.ends_with(" :1"));
    });
}

#[test]
fn each_command_that_writes_is_tried_without_effect_and_with_one() {
    served(|running| async move {
        let all = running.connect().ask("COMMAND LIST").await;
        let tried: Vec<OwnedRequest> =
            COMMANDS.iter().map(|(_, with)| with.split(' ').map(str::as_bytes).collect()).collect();
        let writing = tried.iter().all(|request| {
            find(request.arguments()).is_ok_and(|command| command.has(flags::WRITE))
        });
        assert!(writing);
        // It changes no key.
        for name in all.split(' ').filter(|name| *name != "zdiscard") {
            let writes = named(name.as_bytes()).is_some_and(|command| command.has(flags::WRITE));
            let is_tried = |request: &OwnedRequest| {
                request.arguments().word(0).eq_ignore_ascii_case(name.as_bytes())
            };
            assert!(!writes || tried.iter().any(is_tried), "{name}");
        }
    });
}

/// The stock server counts such a command as a change for those that watch the key.
#[test]
fn a_trim_that_cuts_nothing_is_seen_by_those_that_watch_the_key() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        one.expect(&[("RPUSH l a", ":1"), ("WATCH l", "+OK")]).await;
        other.expect(&[("LTRIM l 0 -1", "+OK")]).await;
        one.expect(&[("MULTI\r\nPING\r\nEXEC", "+OK +QUEUED *-1")]).await;
    });
}
