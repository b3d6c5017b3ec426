//! What clients see that monitor.

use super::{Peer, with_server};

/// The lines that have come, without their times. Addresses are the same for all.
async fn lines(monitor: &mut Peer) -> Vec<String> {
    let all = monitor.read().await;
    let mut lines = all.split('+').filter(|line| !line.is_empty());
    let line = |line: &str| line.split_once(' ').unwrap().1.trim_end().to_owned();
    lines.by_ref().map(line).collect()
}

#[test]
fn monitors_see_no_passwords() {
    with_server(Some("secret"), |running| async move {
        let (mut peer, mut monitor) = (running.connect(), running.connect());
        monitor.expect(&[("AUTH secret", "+OK"), ("MONITOR", "+OK")]).await;
        for request in [
            "HELLO 2 AUTH default secret",
            "HELLO 2 SETNAME auth AUTH default secret",
            "HELLO 9 AUTH default secret",
            "hello 2 auth secret",
            "AUTH secret",
            "AUTH default secret",
            "AUTH default other secret",
            "CONFIG SET requirepass secret",
            "MULTI\r\nAUTH secret\r\nCONFIG SET requirepass secret\r\nEXEC",
            "GET a",
        ] {
            peer.ask(request).await;
        }
        let expected = [
            r#"[0 peer] "HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
            r#"[0 peer] "HELLO" "2" "SETNAME" "auth" "AUTH" "(redacted)" "(redacted)""#,
            r#"[0 peer] "HELLO" "9" "AUTH" "(redacted)" "(redacted)""#,
            r#"[0 peer] "hello" "2" "auth" "(redacted)""#,
            r#"[0 peer] "AUTH" "(redacted)""#,
            r#"[0 peer] "AUTH" "(redacted)" "(redacted)""#,
            r#"[0 peer] "AUTH" "(redacted)" "(redacted)" "(redacted)""#,
            r#"[0 peer] "MULTI""#,
            r#"[0 peer] "AUTH" "(redacted)""#,
            r#"[0 peer] "EXEC""#,
            r#"[0 peer] "GET" "a""#,
        ];
        assert_eq!(lines(&mut monitor).await, expected);
    });
}

#[test]
fn monitors_see_what_is_executed() {
    with_server(None, |running| async move {
        let (mut peer, mut monitor) = (running.connect(), running.connect());
        monitor.expect(&[("MONITOR", "+OK")]).await;
        for request in [
            "SELECT 3",
            "EVAL \"redis.call('SET', KEYS[1], 'y') redis.pcall('GET')\" 1 x",
            "MULTI\r\nGET x\r\nEVALSHA 00 0\r\nEXEC",
            "NOSUCH x",
            "GET",
            "CONFIG GET maxmemory",
            "EXEC",
            "SELECT 0",
        ] {
            peer.ask(request).await;
        }
        let expected = [
            r#"[3 peer] "SELECT" "3""#,
            r#"[3 peer] "EVAL" "redis.call('SET', KEYS[1], 'y') redis.pcall('GET')" "1" "x""#,
            r#"[3 lua] "SET" "x" "y""#,
            r#"[3 peer] "MULTI""#,
            r#"[3 peer] "GET" "x""#,
            r#"[3 peer] "EVALSHA" "00" "0""#,
            r#"[3 peer] "EXEC""#,
            r#"[3 peer] "EXEC""#,
            r#"[0 peer] "SELECT" "0""#,
        ];
        assert_eq!(lines(&mut monitor).await, expected);
    });
}
