//! Answers of commands where they are easily others than those of the stock server.

use super::served;

#[test]
fn a_list_that_is_not_sorted_is_answered_backwards() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("RPUSH l 3 1 2 10", ":4"),
            ("SORT l BY nosort DESC", "*4 $2 10 $1 2 $1 1 $1 3"),
            ("SORT l BY nosort DESC LIMIT 1 2", "*2 $1 2 $1 1"),
            ("SORT l BY nosort LIMIT 1 2", "*2 $1 1 $1 2"),
            ("SORT l BY nosort DESC STORE m", ":4"),
            ("LRANGE m 0 -1", "*4 $2 10 $1 2 $1 1 $1 3"),
        ])
        .await;
    });
}

#[test]
fn a_move_that_waits_in_vain_is_answered_as_a_pop_is() {
    served(|running| async move {
        let mut peer = running.connect();
        for request in ["BLMOVE a b LEFT LEFT 0.001", "BRPOPLPUSH a b 0.001", "BLPOP a 0.001"] {
            assert_eq!(peer.ask(request).await, "*-1", "{request}");
        }
        let transaction = "MULTI\r\nBLMOVE a b LEFT LEFT 1\r\nBLPOP a 1\r\nEXEC";
        assert_eq!(peer.ask(transaction).await, "+OK +QUEUED +QUEUED *2 $-1 *-1");
    });
}

#[test]
fn a_watched_key_has_not_changed_with_its_groups_or_with_the_same_bit() {
    served(|running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        other.ask("XADD w 1-1 a b\r\nSETBIT bits 5 1").await;
        for (request, is_changed) in [
            ("XGROUP CREATE w g 0", false),
            ("XGROUP CREATECONSUMER w g c", false),
            ("XREADGROUP GROUP g c STREAMS w >", false),
            ("XCLAIM w g d 0 1-1", false),
            ("XACK w g 1-1", false),
            ("XGROUP SETID w g 0", false),
            ("XGROUP DESTROY w g", false),
            ("XADD w 2-1 a b", true),
            ("SETBIT bits 5 1", false),
            ("SETBIT bits 3 0", false),
            ("SETBIT bits 8 0", true),
            ("BITFIELD bits SET u8 0 4", false),
            ("BITFIELD bits INCRBY u8 0 0 GET u8 0", false),
            ("BITFIELD bits OVERFLOW FAIL INCRBY u8 0 256", false),
            ("BITFIELD bits SET u8 0 4 SET u8 0 5 SET u8 0 5", true),
            ("BITFIELD bits SET u8 16 0", true),
            ("SETBIT bits 5 0", true),
            ("XGROUP CREATE none g 0 MKSTREAM", true),
        ] {
            assert_eq!(peer.ask("WATCH w bits none").await, "+OK");
            assert!(!other.ask(request).await.starts_with('-'), "{request}");
            let expected = if is_changed { "*-1" } else { "*1 +PONG" };
            let answer = peer.ask("MULTI\r\nPING\r\nEXEC").await;
            assert_eq!(answer, format!("+OK +QUEUED {expected}"), "{request}");
        }
    });
}

#[test]
fn options_are_checked_as_by_the_stock_server() {
    served(|running| async move {
        let mut peer = running.connect();
        let syntax = "-ERR syntax error";
        let subcommand = "-ERR unknown subcommand or wrong number of arguments for";
        let (slow_count, slow, stream) = (
            "-ERR count should be greater than or equal to -1",
            format!("{subcommand} 'GET'. Try SLOWLOG HELP."),
            format!("{subcommand} 'STREAM'. Try XINFO HELP."),
        );
        let policies = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - \
                        argument(s) must be one of the following: volatile-lru, volatile-lfu, \
                        volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, \
                        noeviction";
        peer.expect(&[
            ("COMMAND GETKEYS SORT a BY STORE LIMIT 0 1 STORE b STORE c", "*2 $1 a $1 c"),
            ("COMMAND GETKEYS SORT a GET STORE", "*1 $1 a"),
            ("COMMAND INFO nosuch", "*1 $-1"),
            ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'"),
            ("CLIENT KILL TYPE pubsub", ":0"),
            ("SET k v EX 10 EX 20", "+OK"),
            ("TTL k", ":20"),
            ("SET k v EX 10 PX 20", syntax),
            ("SET k v EX 10 KEEPTTL", syntax),
            ("SET k v XX XX KEEPTTL KEEPTTL", "+OK"),
            ("SET k v NX XX", syntax),
            ("GETEX k EX 10 EX 30", "$1 v"),
            ("TTL k", ":30"),
            ("GETEX k EX 10 PERSIST", syntax),
            ("GETEX k PERSIST EX 10", syntax),
            ("SHUTDOWN NOSAVE SAVE", syntax),
            ("SHUTDOWN ABORT NOW", syntax),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("RESTORE q 0 x FREQ 1 IDLETIME 1", syntax),
            ("RESTORE q 0 x IDLETIME 1 FREQ 1", syntax),
            ("CONFIG SET maxmemory-policy foo", policies),
            ("SLOWLOG GET x", slow_count),
            ("SLOWLOG GET -2", slow_count),
            ("SLOWLOG GET -1", "*0"),
            ("SLOWLOG GET 1 2", &slow),
            ("XINFO STREAM none FOO", "-ERR no such key"),
            ("XADD s 1-1 a b", "$3 1-1"),
            ("XINFO STREAM s FOO", &stream),
        ])
        .await;
    });
}

#[test]
fn a_stream_that_is_cut_approximately_keeps_a_little_more() {
    served(|running| async move {
        let mut peer = running.connect();
        // Bytes of a value; entries from which on some go, which is when a node of stock's is full.
        for (bytes, most) in [(10, 110), (100, 46), (1000, 14), (5000, 11)] {
            let adds = format!("XADD s MAXLEN ~ 10 * field {}", "x".repeat(bytes));
            let mut lengths = Vec::new();
            for _ in 0..300 {
                peer.ask(&adds).await;
                lengths.push(peer.ask("XLEN s").await[1..].parse::<usize>().unwrap());
            }
            let least = lengths[10..].iter().min().copied();
            assert_eq!((least, lengths.iter().max().copied()), (Some(10), Some(most - 1)));
            peer.expect(&[("DEL s", ":1")]).await;
        }
    });
}

#[test]
fn consumers_are_asked_for_what_they_have_not_acknowledged() {
    served(|running| async move {
        let mut peer = running.connect();
        let adds: Vec<_> = (1..=5).map(|id| format!("XADD s {id}-1 f v")).collect();
        peer.ask(&adds.join("\r\n")).await;
        peer.ask("XGROUP CREATE s g 0").await;
        peer.ask("XREADGROUP GROUP g one COUNT 3 STREAMS s >").await;
        peer.ask("XREADGROUP GROUP g two STREAMS s >").await;
        let entry = |id: u8| format!("*2 $3 {id}-1 *2 $1 f $1 v");
        let last = format!("*1 *2 $1 s *1 {}", entry(3));
        peer.expect(&[
            ("XPENDING s g", "*4 :5 $3 1-1 $3 5-1 *2 *2 $3 one $1 3 *2 $3 two $1 2"),
            ("XPENDING s g 4 2 10", "*0"),
            ("XPENDING s g 4 2 10 one", "*0"),
            ("XPENDING s g 4 + 10 one", "*0"),
            ("XPENDING s g IDLE 100000000 - + 10", "*0"),
            ("XREADGROUP GROUP g one STREAMS s 2-1", &last),
            (
                "XREADGROUP GROUP g two STREAMS s 18446744073709551615-18446744073709551615",
                "*1 *2 $1 s *0",
            ),
            ("XCLAIM s g two 0 1-1 9-9 JUSTID", "*1 $3 1-1"),
            ("XPENDING s g", "*4 :5 $3 1-1 $3 5-1 *2 *2 $3 one $1 2 *2 $3 two $1 3"),
            ("XACK s g 1-1 1-1 4-1", ":2"),
            ("XPENDING s g", "*4 :3 $3 2-1 $3 5-1 *2 *2 $3 one $1 2 *2 $3 two $1 1"),
            ("XGROUP DELCONSUMER s g one", ":2"),
            ("XPENDING s g", "*4 :1 $3 5-1 $3 5-1 *1 *2 $3 two $1 1"),
        ])
        .await;
        let counted = peer.ask("XPENDING s g 5 + 10 two").await;
        assert!(
            counted.starts_with("*1 *4 $3 5-1 $3 two :") && counted.ends_with(" :1"),
            "{counted}"
        );
    });
}

#[test]
fn a_stream_is_cut_by_nodes_unless_all_entries_go() {
    served(|running| async move {
        let mut peer = running.connect();
        for (entries, cut, removed) in [
            (50, "MAXLEN ~ 0", 50),
            (50, "MINID ~ 51", 50),
            (50, "MINID ~ 50", 0),
            (250, "MAXLEN ~ 100", 100),
            (250, "MAXLEN ~ 0 LIMIT 50", 0),
            (250, "MAXLEN ~ 0 LIMIT 200", 200),
            (250, "MAXLEN ~ 0 LIMIT 0", 250),
            (250, "MAXLEN = 100", 150),
        ] {
            let adds: Vec<_> = (1..=entries).map(|id| format!("XADD s {id}-1 f v")).collect();
            peer.ask(&adds.join("\r\n")).await;
            assert_eq!(peer.ask(&format!("XTRIM s {cut}")).await, format!(":{removed}"), "{cut}");
            peer.expect(&[("DEL s", ":1")]).await;
        }
        let adds: Vec<_> = (1..=95).map(|id| format!("XADD s {id}-1 f v")).collect();
        peer.ask(&adds.join("\r\n")).await;
        peer.expect(&[
            ("CONFIG SET stream-node-max-entries 10", "+OK"),
            ("XTRIM s MAXLEN ~ 42", ":50"),
            ("CONFIG SET stream-node-max-entries 0 stream-node-max-bytes 0", "+OK"),
            ("XTRIM s MAXLEN ~ 5", ":0"),
            ("XADD s MAXLEN ~ 0 99-1 f v", "$4 99-1"),
            ("XLEN s", ":0"),
        ])
        .await;
    });
}

#[test]
fn scores_are_put_together_from_the_smallest_set_on() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.ask("ZADD p 0.1 x\r\nZADD q 0.2 x 1 y\r\nZADD r 0.3 x 1 y 1 z").await;
        peer.ask("ZADD a inf x\r\nZADD b 5 x\r\nZADD m -inf x\r\nZADD big inf x 1 y 2 z").await;
        for keys in ["p q r", "q p r", "r q p", "r p q"] {
            peer.expect(&[
                (&format!("ZUNIONSTORE d 3 {keys}"), ":3"),
                ("ZSCORE d x", "$18 0.6000000000000001"),
                (&format!("ZINTER 3 {keys} WITHSCORES"), "*2 $1 x $18 0.6000000000000001"),
            ])
            .await;
        }
        // Of those that are equally large the first comes first. Both infinities make 0, and so
        // does nothing of infinity: of the first set at once, of others when it is added.
        for (request, score) in [
            ("ZINTER 3 a m b", "5"),
            ("ZINTER 3 a b m", "0"),
            ("ZINTER 3 big m b", "0"),
            ("ZINTER 3 a m big", "inf"),
            ("ZUNION 3 a m b", "5"),
            ("ZUNION 3 b a m", "0"),
            ("ZUNION 2 b a WEIGHTS 1 0", "5"),
            ("ZUNION 2 b a WEIGHTS -1 0 AGGREGATE MAX", "0"),
            ("ZINTER 2 a b WEIGHTS 0 1", "5"),
            ("ZINTER 2 b a WEIGHTS 1 0", "0"),
            ("ZINTER 2 b a WEIGHTS 1 0 AGGREGATE MIN", "5"),
            ("ZINTER 2 a b WEIGHTS 0 1 AGGREGATE MIN", "0"),
            ("ZINTER 2 b a WEIGHTS -1 0 AGGREGATE MAX", "-5"),
            ("ZINTER 2 big b WEIGHTS 0 1 AGGREGATE MIN", "5"),
        ] {
            let answer = peer.ask(&format!("{request} WITHSCORES")).await;
            assert_eq!(answer, format!("*2 $1 x ${} {score}", score.len()), "{request}");
        }
    });
}

#[test]
fn the_lag_of_a_group_that_read_more_than_there_was_is_below_zero() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.ask("XADD s 1-1 f v\r\nXADD s 2-1 f v").await;
        peer.expect(&[("XGROUP CREATE s g 0 ENTRIESREAD 3", "+OK")]).await;
        let answer = peer.ask("XINFO GROUPS s").await;
        assert!(answer.ends_with("$12 entries-read :3 $3 lag :-1"), "{answer}");
    });
}

#[test]
fn exec_with_arguments_ends_the_transaction_and_what_is_watched() {
    served(|running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        let aborted = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                       'exec' command";
        peer.expect(&[
            ("WATCH k", "+OK"),
            ("EXEC foo", aborted),
            ("MULTI", "+OK"),
            ("EXEC foo", aborted),
            ("EXEC", "-ERR EXEC without MULTI"),
            ("WATCH k", "+OK"),
            ("EXEC foo", aborted),
        ])
        .await;
        other.expect(&[("SET k 1", "+OK")]).await;
        assert_eq!(peer.ask("MULTI\r\nPING\r\nEXEC").await, "+OK +QUEUED *1 +PONG");
    });
}

#[test]
fn clients_are_listed_and_ended_by_the_same_options() {
    served(|running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        let id = |answer: String| answer.trim_start_matches(':').to_owned();
        let (me, them) = (id(peer.ask("CLIENT ID").await), id(other.ask("CLIENT ID").await));
        let has = |listed: &str, id: &str| listed.contains(&format!("id={id} "));
        for (options, mine, theirs) in [
            ("", true, true),
            (" USER default", true, true),
            (" SKIPME yes", false, true),
            (" ADDR peer TYPE normal", true, true),
            (" ADDR other", false, false),
            (" TYPE pubsub", false, false),
            (" MAXAGE 1000", false, false),
            (&format!(" ID 77 {them} TYPE normal"), false, true),
        ] {
            let listed = peer.ask(&format!("CLIENT LIST{options}")).await;
            assert_eq!((has(&listed, &me), has(&listed, &them)), (mine, theirs), "{options}");
            assert!(!mine || listed.contains(" cmd=client|list "), "{listed}");
        }
        let syntax = "-ERR syntax error";
        let no_local = "-ERR LADDR is not known: leave it out, or choose clients by ID or ADDR";
        for command in ["LIST", "KILL"] {
            for (options, answer) in [
                ("ID abc", syntax),
                ("ID 5 TYPE", syntax),
                ("ID 0", "-ERR client-id should be greater than 0"),
                ("ID 5 -1", "-ERR client-id should be greater than 0"),
                ("MAXAGE x", "-ERR maxage is not an integer or out of range"),
                ("MAXAGE -1", "-ERR maxage should be greater than 0"),
                ("USER nosuch", "-ERR No such user 'nosuch'"),
                ("LADDR 127.0.0.1:6379", no_local),
                ("SKIPME maybe", syntax),
            ] {
                let request = format!("CLIENT {command} {options}");
                assert_eq!(peer.ask(&request).await, answer, "{request}");
            }
        }
        peer.expect(&[(&format!("CLIENT KILL ID 77 {them} USER default"), ":1")]).await;
        assert_eq!(other.read().await, "(end)");
    });
}

#[test]
fn info_has_what_libraries_and_dashboards_ask_for() {
    served(|running| async move {
        let mut peer = running.connect();
        let large = "x".repeat(2000);
        peer.expect(&[("CONFIG SET maxmemory 3mb", "+OK"), (&format!("SET k {large}"), "+OK")])
            .await;
        assert!(peer.ask("INFO cluster").await.ends_with("# Cluster cluster_enabled:0"));
        let memory = peer.ask("INFO memory").await;
        let value = |name: &str| {
            let (_, after) = memory.split_once(&format!(" {name}:")).unwrap();
            after.split(' ').next().unwrap().to_owned()
        };
        let (bytes, text) = (value("used_memory"), value("used_memory_human"));
        let bytes: f64 = bytes.parse().unwrap();
        assert_eq!(text, format!("{:.2}K", bytes / 1024.0));
        assert_eq!(value("maxmemory_human"), "3.00M");
        let [machine, resident] = ["total_system_memory", "used_memory_rss"].map(value);
        assert!(machine.parse::<u64>().unwrap() > resident.parse().unwrap(), "{memory}");
        peer.expect(&[("CONFIG SET maxmemory 1000", "+OK")]).await;
        assert!(peer.ask("INFO memory").await.contains(" maxmemory_human:1000B "));
    });
}

#[test]
fn a_subscriber_is_told_that_its_transaction_is_aborted() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("SUBSCRIBE a", "*3 $9 subscribe $1 a :1"),
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $1 a :0"),
            ("MULTI\r\nSUBSCRIBE a\r\nEXEC", "+OK +QUEUED *1 *3 $9 subscribe $1 a :1"),
        ])
        .await;
        let answer = peer.ask("EXEC").await;
        let expected = "-EXECABORT Transaction discarded because of: Can't execute 'exec': only ";
        assert!(answer.starts_with(expected), "{answer}");
    });
}

#[test]
fn a_connection_keeps_its_library_when_it_is_reset() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("CLIENT SETINFO LIB-NAME library", "+OK"),
            ("CLIENT SETINFO LIB-VER 1.0", "+OK"),
            ("CLIENT SETNAME name", "+OK"),
            ("RESET", "+RESET"),
            ("CLIENT GETNAME", "$-1"),
        ])
        .await;
        let info = peer.ask("CLIENT INFO").await;
        assert!(info.contains("lib-name=library lib-ver=1.0"), "{info}");
    });
}
