//! What a client can ask a server for beside loads and commits.

use std::sync::Arc;

use crate::common::peer::{Peer, play, play_with};
use crate::common::switch::Switch;
use crate::common::{Server, commit, record};
use zodium_client::{ClientError, Interrupt, Options};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

#[test]
fn what_the_server_tells_of_itself_is_known_and_what_it_tells_later_is_added() {
    play(
        |listener| {
            let mut peer = Peer::accept(listener);
            let register = peer.expect("register");
            peer.reply(&register, Tid(10).into());
            let info = peer.expect("get_info");
            peer.reply(&info, Value::dict([("length", 1.into()), ("name", "main".into())]));
            peer.tell("info", &Value::tuple([Value::dict([("length", 2.into())])]));
            let ping = peer.expect("ping");
            peer.reply(&ping, Value::None);
        },
        |client, _| {
            client.sync().unwrap();
            let info = client.info();
            assert_eq!(info.entry("name").and_then(Value::as_str), Some("main"));
            assert_eq!(info.entry("length").and_then(Value::as_u64), Some(2));
            assert_eq!(info.as_dict().unwrap().len(), 2);
        },
    );
}

#[test]
fn a_call_without_a_reply_is_sent() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            peer.expect("set_client_label");
        },
        |client, _| client.cast("set_client_label", &Value::tuple(["label".into()])).unwrap(),
    );
}

#[test]
fn a_cleared_cache_has_no_revision_and_loads_go_to_the_server() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let tid = commit(&client, &[(1, "one"), (2, "two")]);
    assert!(client.load_cached(Oid(1), tid.next()).is_some());
    client.clear_cache();
    assert!(client.load_cached(Oid(1), tid.next()).is_none());
    assert_eq!(client.cache_metrics().objects, 0);
    assert_eq!(client.load_current(Oid(1)).unwrap().data, record("one"));
}

#[test]
fn a_load_that_is_interrupted_leaves_the_connection_usable() {
    let stop = Arc::new(Switch::default());
    let interrupt = Some(Arc::clone(&stop) as Arc<dyn Interrupt>);
    play_with(
        |options| Options { interrupt, ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let load = peer.expect("loadBefore");
            let ping = peer.expect("ping");
            peer.reply_load(&load, b"late", Tid(5));
            peer.reply(&ping, Value::None);
        },
        |client, _| {
            stop.set(true);
            let error = client.load_before(Oid(1), Tid(11)).unwrap_err();
            assert!(matches!(error, ClientError::Interrupted), "{error:?}");
            stop.set(false);
            client.sync().unwrap();
            assert_eq!(client.load_cached(Oid(1), Tid(11)).unwrap().data, b"late".as_slice());
        },
    );
}
