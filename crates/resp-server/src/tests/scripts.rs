//! Scripts that would end the server, or take all of its memory or time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zodium_types::Tid;

use super::log::OneCommit;
use super::{Peer, served, with};
use crate::{Options, Server};

/// What a script without keys is answered.
async fn eval(peer: &mut Peer, script: &str) -> String {
    assert!(!script.contains('"'), "{script}");
    peer.ask(&format!("EVAL \"{script}\" 0")).await
}

async fn expect(peer: &mut Peer, scripts: &[(&str, &str)]) {
    for (script, answer) in scripts {
        assert_eq!(eval(peer, script).await, *answer, "{script}");
    }
}

async fn expect_failures(peer: &mut Peer, scripts: &[(&str, &str)]) {
    for (script, error) in scripts {
        let answer = eval(peer, script).await;
        assert!(answer.starts_with('-') && answer.contains(error), "{script}: {answer}");
        assert!(!answer.contains("prelude"), "{script}: {answer}");
    }
}

#[test]
fn unpack_gives_no_more_values_than_lua_has_room_for() {
    served(|running| async move {
        let mut peer = running.connect();
        let many = "too many results to unpack";
        expect_failures(
            &mut peer,
            &[
                ("return {unpack({}, 0, 2147483647)}", many),
                ("return {unpack({}, -2147483648, 2147483647)}", many),
                ("return {unpack({}, '-1', '2147483646')}", many),
                ("return {unpack({}, -1, 2^32)}", many),
                ("return {unpack({}, -2^31 - 1, -2^31)}", many),
                ("return {unpack({}, 0/0)}", many),
                ("return {unpack({}, 1, 8001)}", many),
                ("return {unpack(nil)}", "bad argument #1 to 'unpack' (table expected, got nil)"),
                ("return {unpack({}, {})}", "bad argument #2 to 'unpack'"),
            ],
        )
        .await;
        expect(
            &mut peer,
            &[
                ("return {unpack({1, 2, 3})}", "*3 :1 :2 :3"),
                ("return {unpack({1, 2, 3}, '2')}", "*2 :2 :3"),
                ("return {unpack({1, 2, 3}, 2, 2)}", "*1 :2"),
                ("return {unpack({1}, 2147483647, -2147483648)}", "*0"),
                ("return select('#', unpack({}, 2147483640, 2147483647))", ":8"),
                ("return select('#', unpack({}, 1, 7900))", ":7900"),
            ],
        )
        .await;
    });
}

#[test]
fn patterns_that_nest_too_deep_are_refused() {
    served(|running| async move {
        let mut peer = running.connect();
        let complex = "pattern too complex";
        let text = "local s, p = string.rep('a', 300000), string.rep('a?', 300000) ";
        for use_ in [
            "return string.find(s, p)",
            "return s:find(p, 1, false)",
            "return {string.match(s, p)}",
            "for w in s:gmatch(p) do end",
            "return s:gsub(p, 'b')",
            "return s:match(string.rep('a-', 300000) .. 'b')",
            "return s:match(string.rep('()', 300000))",
        ] {
            expect_failures(&mut peer, &[(&format!("{text}{use_}"), complex)]).await;
        }
        expect_failures(
            &mut peer,
            &[
                ("return string.find('a', nil)", "bad argument #2 to 'find'"),
                ("return ('a'):match('(')", "unfinished capture"),
                ("return (string.gsub('a', 'a', function() error('mine') end))", "mine"),
            ],
        )
        .await;
        expect(
            &mut peer,
            &[
                ("local p = string.rep('a?', 3000) return ('x' .. p):find(p, 1, true)", ":2"),
                ("return {('key: value'):match('^(%w+):%s*(.-)$')}", "*2 $3 key $5 value"),
                ("return {('a.b.c'):gsub('%.', '/')}", "*2 $5 a/b/c :2"),
                (
                    "return {('x(y(z))'):match('%b()'), ('THE x'):find('%f[%a]%a+')}",
                    "*3 $6 (y(z)) :1 :3",
                ),
                ("local n = 0 for w in ('a b c'):gmatch('%a') do n = n + 1 end return n", ":3"),
                ("return {('aa'):gsub('a', 'b', 1)}", "*2 $2 ba :1"),
                ("return #string.match(string.rep('ab', 5000), string.rep('ab', 1000))", ":2000"),
                (
                    "return {pcall(string.find, 'a', '%')}",
                    "*2 $-1 $33 malformed pattern (ends with '%')",
                ),
            ],
        )
        .await;
    });
}

#[test]
fn results_are_whole_or_refused() {
    served(|running| async move {
        let mut peer = running.connect();
        let large = "the result of the script is too large";
        let many = "local a, t = {}, {} for i = 1, 1100 do a[i], t[i] = i, a end ";
        expect_failures(
            &mut peer,
            &[
                (&format!("{many}return t"), large),
                (&format!("{many}redis.setresp(3) return {{map = {{[t] = 1}}}}"), large),
            ],
        )
        .await;
        assert_eq!(peer.ask("CONFIG SET proto-max-bulk-len 1mb").await, "+OK");
        let script = "local s = string.rep('x', 1000) local t = {} for i = 1, 1100 do t[i] = s end";
        expect_failures(&mut peer, &[(&format!("{script} return t"), large)]).await;
        // More than the references to values that Lua has room for.
        let script = "local t = {} for i = 1, 20000 do t[i] = 'x' .. i end return t";
        let answer = eval(&mut peer, script).await;
        assert!(answer.starts_with("*20000 $2 x1 "), "{}", &answer[..20]);
        assert!(answer.ends_with(" $6 x20000"), "{}", &answer[answer.len() - 20..]);
        // Within a transaction the error stands in for the result.
        let requests = format!("MULTI\r\nPING\r\nEVAL \"{many}return t\" 0\r\nPING\r\nEXEC");
        let answer = peer.ask(&requests).await;
        let expected = "+OK +QUEUED +QUEUED +QUEUED *3 +PONG -ERR the result";
        assert!(answer.starts_with(expected) && answer.ends_with(" +PONG"), "{answer}");
    });
}

#[test]
fn encoded_values_have_an_end() {
    served(|running| async move {
        let mut peer = running.connect();
        let long = "the encoded value is longer than 128 MiB";
        let many = "local s, t = string.rep('x', 1000000), {} for i = 1, 200 do t[i] = s end ";
        expect_failures(
            &mut peer,
            &[
                (&format!("{many}return #cmsgpack.pack(t)"), long),
                ("local t = {} t[1] = t return cjson.encode(t)", "excessive depth"),
                ("local t = {} t.t = t return cjson.encode(t)", "excessive depth"),
                ("return cmsgpack.unpack(string.rep('a', 9000))", "too many results to unpack"),
                ("return cjson.decode('[1, 2')", "the JSON cannot be decoded: EOF while parsing"),
                ("return cjson.decode('[1] 2')", "trailing characters"),
            ],
        )
        .await;
        // More than the references to values that Lua has room for.
        let tables = "local t = {} for i = 1, 20000 do t['k' .. i] = {i} end ";
        let array = "local t = {} for i = 1, 20000 do t[i] = {i} end ";
        expect(
            &mut peer,
            &[
                (&format!("{tables}return cmsgpack.unpack(cmsgpack.pack(t)).k20000"), "*1 :20000"),
                (&format!("{array}return cmsgpack.unpack(cmsgpack.pack(t))[20000]"), "*1 :20000"),
                (&format!("{tables}return cjson.decode(cjson.encode(t)).k20000"), "*1 :20000"),
                ("return cjson.encode({0.00005, 0.0001})", "$14 [5e-05,0.0001]"),
                ("return cjson.decode('[1, -2.5, [], null, true, {}]')[2] * 2", ":-5"),
                (
                    "return cjson.encode(cjson.decode('[null, true, 1e3, -7]'))",
                    "$19 [null,true,1000,-7]",
                ),
            ],
        )
        .await;
    });
}

/// Has a script executed while another thread kills the one that runs, if one does.
fn expect_killed(prepare: &'static str, request: String) {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        assert!(!eval(&mut peer, prepare).await.starts_with('-'));
        let killer = thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            while server.scripts.running.kill().is_err() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let answer = peer.ask(&request).await;
        let shown = &answer[..answer.len().min(100)];
        assert!(answer.starts_with('-') && answer.contains("Script killed by user"), "{shown}");
        killer.join().unwrap();
    });
}

#[test]
fn a_script_that_encodes_is_killed() {
    // A loop that Lua's own hook does not see.
    let script = "local t = {} for i = 1, 100 do t = {t, t} end return cjson.encode(t)";
    expect_killed("return 1", format!("EVAL \"{script}\" 0"));
}

#[test]
fn a_script_that_gets_a_long_answer_is_killed() {
    let prepare = "for i = 1, 300 do redis.call('SADD', 's', i) end \
                   for i = 1, 300 do redis.call('RPUSH', 'l', unpack(redis.call('SMEMBERS', 's'))) \
                   end return 1";
    expect_killed(prepare, "EVAL \"return #redis.call('LRANGE', 'l', 0, -1)\" 0".to_owned());
}

#[test]
fn a_script_that_is_compiled_is_killed() {
    // Lua tells strings apart by a part of their bytes, so that this takes long.
    let text = "x".repeat(100);
    let texts: String = (0..9000).map(|number| format!("'{number}{text}',")).collect();
    expect_killed("return 1", as_request(&format!("local t = {{{texts}}} return #t")));
}

/// `EVAL` of a long script.
fn as_request(script: &str) -> String {
    format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0", script.len())
}

#[test]
fn compiled_scripts_leave_room_for_others() {
    served(|running| async move {
        let mut peer = running.connect();
        let numbers: String = (0..150_000).map(|number| format!("{number},")).collect();
        // They take five megabytes each when they are compiled.
        for number in 0..40 {
            let script = format!("local t = {{{numbers}}} return {number}");
            assert_eq!(peer.ask(&as_request(&script)).await, format!(":{number}"));
            if number % 5 == 0 {
                let large = "return #string.rep('x', 20000000)";
                expect(&mut peer, &[("return 1", ":1"), (large, ":20000000")]).await;
            }
        }
    });
}

#[test]
fn garbage_of_large_texts_is_no_reason_to_refuse_memory() {
    served(|running| async move {
        let mut peer = running.connect();
        // 450 megabytes in all, of which seven are in use at a time.
        let script = "local t = {} for i = 1, 50000 do t[i] = 'k' .. i end \
                      local s = '' for i = 1, 300 do s = s .. string.rep('x', 10000) end \
                      return #s";
        expect(&mut peer, &[(script, ":3000000")]).await;
    });
}

#[test]
fn a_script_that_has_written_is_not_refused_memory() {
    served(|running| async move {
        let mut peer = running.connect();
        let refusal = "OOM command not allowed when used memory > 'maxmemory'.";
        peer.expect(&[("RPUSH from a b", ":2"), ("CONFIG SET maxmemory 1", "+OK")]).await;
        let add = "return redis.call('LPUSH', 'to', 'c')";
        let move_one = "redis.call('LPUSH', 'to', redis.call('RPOP', 'from')) return 1";
        expect_failures(&mut peer, &[(add, refusal)]).await;
        expect(&mut peer, &[(move_one, ":1")]).await;
        peer.expect(&[("LRANGE from 0 -1", "*1 $1 a"), ("LRANGE to 0 -1", "*1 $1 b")]).await;
        let declared = "#!lua\\nreturn redis.call('RPOP', 'from')";
        expect_failures(&mut peer, &[(declared, "OOM allow-oom flag is not set")]).await;
        expect(&mut peer, &[("#!lua flags=allow-oom\\nreturn redis.call('RPOP', 'from')", "$1 a")])
            .await;
    });
}

#[test]
fn an_answer_without_room_in_lua_is_an_error_of_the_script() {
    served(|running| async move {
        let mut peer = running.connect();
        let script = "redis.call('SET', 'k', string.rep('x', 1000000)) \
             local t = {} for i = 1, 200 do t[i] = 'k' end \
             return redis.call('MGET', unpack(t))";
        expect_failures(&mut peer, &[(script, "too large for a script")]).await;
    });
}

#[test]
fn a_script_or_command_reaches_no_object_of_a_storage_as_a_key() {
    let server = Arc::new(Server::new(Options::default()));
    server.attach(Arc::new(OneCommit(Tid(1))));
    with(server, |running| async move {
        let mut peer = running.connect();
        let error = "only GET and HGETALL take them";
        expect_failures(
            &mut peer,
            &[
                ("return redis.call('set', 'zodb:main:1', '1')", error),
                ("return redis.call('get', 'zodb:main:1')", error),
            ],
        )
        .await;
        expect(&mut peer, &[("return redis.call('set', 'zodb', '1')", "+OK")]).await;
        peer.expect(&[("RPUSH list 1", ":1")]).await;
        for command in [
            "MSET a 1 zodb:main:1 2",
            "RENAME list zodb:main:1",
            "COPY list zodb:l",
            "SORT list STORE zodb:l",
        ] {
            let answer = peer.ask(command).await;
            assert!(answer.contains(error), "{command}: {answer}");
        }
        let moved = peer.ask("LMOVE list zodb:main:1 LEFT LEFT\r\nLLEN list\r\nEXISTS a").await;
        assert!(moved.ends_with(":1 :0"), "{moved}");
    });
}

#[test]
fn no_function_of_tables_writes_to_those_that_all_scripts_share() {
    served(|running| async move {
        let mut peer = running.connect();
        let readonly = "ERR Attempt to modify a readonly table script: ";
        for table in ["redis", "string", "table", "_G", "getmetatable('')"] {
            expect_failures(
                &mut peer,
                &[
                    (&format!("table.insert({table}, 1)"), readonly),
                    (&format!("table.insert({table}, 1, 'x')"), readonly),
                ],
            )
            .await;
            // There is nothing that these could move.
            expect(
                &mut peer,
                &[
                    (&format!("return {{table.remove({table}), table.remove({table}, 1)}}"), "*0"),
                    (&format!("table.sort({table}) return rawget({table}, 1)"), "$-1"),
                ],
            )
            .await;
        }
        let caught = "local ok, e = pcall(table.insert, redis, 1) return e";
        expect(
            &mut peer,
            &[
                (caught, "$38 ERR Attempt to modify a readonly table"),
                ("local t = {1} table.insert(t, 3) table.insert(t, 2, 2) return t", "*3 :1 :2 :3"),
                ("table.insert(KEYS, 'k') return KEYS", "*1 $1 k"),
            ],
        )
        .await;
        expect_failures(
            &mut peer,
            &[
                ("table.insert({}, 1, 2, 3)", "wrong number of arguments to 'insert'"),
                ("table.insert(nil, 1)", "bad argument #1 to 'insert' (table expected, got nil)"),
            ],
        )
        .await;
    });
}

/// Has a script wait for the clock in between, while other threads look at its keys.
#[test]
fn a_script_is_seen_as_a_whole_also_at_keys_that_it_does_not_name() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let looking = {
            let (server, keys) = (Arc::clone(&server), keys.clone());
            let is_over = Arc::clone(&is_over);
            move || {
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let all = server.keyspace.stripes(keys.iter().map(|key| key.as_bytes()));
                    let hold = server.lock_however_long(all);
                    let lengths = keys.iter().map(|key| {
                        let text = hold.read_string(key.as_bytes()).unwrap();
                        text.map_or(0, |text| text.len())
                    });
                    let lengths: Vec<usize> = lengths.collect();
                    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
                    seen += 1;
                }
                seen
            }
        };
        let looking = [looking.clone(), looking].map(thread::spawn);
        let append = "for i = tonumber(ARGV[1]), ARGV[2], ARGV[3] do \
                      redis.call('APPEND', 'k' .. i, 'x') end return 1";
        for round in 0..300 {
            let order = if round % 2 == 0 { "0 19 1" } else { "19 0 -1" };
            let answer = peer.ask(&format!("EVAL \"{append}\" 1 k7 {order}")).await;
            assert_eq!(answer, ":1");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(looking.into_iter().all(|thread| thread.join().unwrap() > 0));
        peer.expect(&[("STRLEN k0", ":300"), ("STRLEN k19", ":300")]).await;
    });
}

#[test]
fn a_script_holds_its_own_keys_and_no_others_before_it_comes_to_them() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        let stripe = |key: &str| server.keyspace.stripe(key.as_bytes());
        let mut numbers = (0..).map(|number: u32| number.to_string());
        let other = numbers.find(|key| stripe(key) != stripe("mine")).unwrap();
        for (call, is_held) in [
            ("redis.call('GET', KEYS[1])".to_owned(), false),
            (format!("redis.call('GET', '{other}')"), true),
            ("redis.call('DBSIZE')".to_owned(), true),
            // A client that gets the message is not to see a key as it was before.
            ("redis.call('PUBLISH', 'channel', 'text')".to_owned(), true),
        ] {
            let is_locked = {
                let server = Arc::clone(&server);
                let stripes = [stripe("mine"), stripe(&other)];
                move |number: usize| server.keyspace.try_lock(stripes[number], 1, None).is_none()
            };
            let killing = Arc::clone(&server);
            let looking = thread::spawn(move || {
                let until = Instant::now() + Duration::from_secs(20);
                while !is_locked(usize::from(is_held)) && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(20));
                let locked = [is_locked(0), is_locked(1)];
                killing.scripts.running.kill().unwrap();
                locked
            });
            let answer = peer.ask(&format!("EVAL \"{call} while true do end\" 1 mine")).await;
            assert!(answer.contains("Script killed"), "{call}: {answer}");
            assert_eq!(looking.join().unwrap(), [true, is_held], "{call}");
        }
    });
}
