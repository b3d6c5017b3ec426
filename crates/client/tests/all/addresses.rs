//! Which of its servers a client uses.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::peer::{Peer, SILENCE, wait_until};
use crate::common::{Server, commit};
use zodium_client::{Access, Client, ClientError, Options, TransactionOptions};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Long enough for the first attempt on a busy machine.
const SHORT: Duration = Duration::from_millis(1000);

/// An address where no server listens.
fn absent(folder: &Path, name: &str) -> Address {
    Address::Unix(folder.join(name))
}

/// A server that takes connections and says nothing.
fn silent(folder: &Path) -> (UnixListener, Address) {
    let path = folder.join("silent");
    (UnixListener::bind(&path).unwrap(), Address::Unix(path))
}

fn read_only_server() -> Server {
    let mut server = Server::start(Encoding::Pickle);
    server.read_only = true;
    server.restart();
    server
}

#[test]
fn a_client_that_only_reads_does_not_wait_for_further_servers() {
    let folder = tempfile::tempdir().unwrap();
    let (_listener, silent) = silent(folder.path());
    let server = read_only_server();
    let mut options = Options { access: Access::ReadOnly, ..server.options() };
    options.addresses.push(silent);
    // The silent server is given up after far longer.
    options.wait_timeout = Duration::from_secs(5);
    options.silence_max = Duration::from_secs(60);
    let client = Client::connect(options).unwrap();
    assert!(client.is_connected() && client.is_read_only());
}

#[test]
fn a_server_that_takes_no_commits_is_better_than_one_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (_listener, silent) = silent(folder.path());
    let server = read_only_server();
    let mut options = Options { access: Access::Fallback, ..server.options() };
    options.addresses.push(silent);
    options.wait_timeout = Duration::from_secs(10);
    let client = Client::connect(options).unwrap();
    assert!(client.is_connected() && client.is_read_only());
}

/// Lets a fallback client in as a server that takes no commits.
fn admit_reader(peer: &mut Peer, last: Tid) {
    refuse_writer(peer);
    peer.admit(last, |_| ());
}

fn refuse_writer(peer: &mut Peer) {
    let register = peer.expect("register");
    peer.fail(&register, "ZODB.POSException.ReadOnlyError");
}

#[test]
fn a_server_that_takes_no_commits_is_better_than_one_that_fails_later() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["reader", "failing"].map(|name| folder.path().join(name));
    let [reader, failing] = paths.each_ref().map(|path| UnixListener::bind(path).unwrap());
    let served = thread::spawn(move || {
        let mut peer = Peer::accept(&reader);
        refuse_writer(&mut peer);
        let register = peer.expect("register");
        peer.reply(&register, Tid(10).into());
        let (leaving, _) = failing.accept().unwrap();
        // The first one has become the second choice.
        thread::sleep(SILENCE);
        drop(leaving);
        let asked = peer.expect("get_info");
        peer.reply(&asked, Value::dict::<&str>([]));
        peer
    });
    let addresses = paths.map(Address::Unix).to_vec();
    let options = Options { access: Access::Fallback, ..Options::new(addresses[0].clone()) };
    let client = Client::connect(Options { addresses, ..options }).unwrap();
    assert!(client.is_connected() && client.is_read_only());
    let refused = client.begin(&TransactionOptions::default()).err();
    assert!(matches!(refused, Some(ClientError::ReadOnly)), "{refused:?}");
    served.join().unwrap();
}

#[test]
fn a_server_that_takes_commits_is_better_than_one_that_answers_first() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["reader", "writer"].map(|name| folder.path().join(name));
    let [reader, writer] = paths.each_ref().map(|path| UnixListener::bind(path).unwrap());
    let served = thread::spawn(move || {
        let mut first = Peer::accept(&reader);
        refuse_writer(&mut first);
        let register = first.expect("register");
        first.reply(&register, Tid(10).into());
        (first, Peer::admitted(&writer, Tid(10)))
    });
    let addresses = paths.map(Address::Unix).to_vec();
    let options = Options { access: Access::Fallback, ..Options::new(addresses[0].clone()) };
    let client = Client::connect(Options { addresses, ..options }).unwrap();
    assert!(client.is_connected() && !client.is_read_only());
    client.close();
    served.join().unwrap();
}

#[test]
fn the_first_server_that_takes_commits_is_used_whatever_answers_next() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["reader", "writer"].map(|name| folder.path().join(name));
    let [reader, writer] = paths.each_ref().map(|path| UnixListener::bind(path).unwrap());
    let served = thread::spawn(move || {
        let mut first = Peer::accept(&writer);
        let register = first.expect("register");
        first.reply(&register, Tid(10).into());
        let mut second = Peer::accept(&reader);
        refuse_writer(&mut second);
        let register = second.expect("register");
        second.reply(&register, Tid(10).into());
        let asked = first.expect("get_info");
        first.reply(&asked, Value::dict::<&str>([]));
        (first, second)
    });
    let addresses = paths.map(Address::Unix).to_vec();
    let options = Options { access: Access::Fallback, ..Options::new(addresses[0].clone()) };
    let client = Client::connect(Options { addresses, ..options }).unwrap();
    assert!(client.is_connected() && !client.is_read_only());
    client.close();
    served.join().unwrap();
}

#[test]
fn a_better_server_is_searched_for_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reader");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || {
        let mut reader = Peer::accept(&listener);
        admit_reader(&mut reader, Tid(10));
        // The client waits for this answer before it asks again.
        let mut asked = Peer::accept(&listener);
        let ping = reader.expect("ping");
        reader.reply(&ping, Value::None);
        refuse_writer(&mut asked);
        asked.expect_end();
        // It still takes no commits, and then it does.
        refuse_writer(&mut Peer::accept(&listener));
        let ping = reader.expect("ping");
        reader.reply(&ping, Value::None);
        let mut writer = Peer::accept(&listener);
        let register = writer.expect("register");
        writer.reply(&register, Tid(10).into());
        reader.expect_end();
        let asked = writer.expect("get_info");
        writer.reply(&asked, Value::dict::<&str>([]));
        writer
    });
    let options = Options { access: Access::Fallback, ..Options::new(Address::Unix(path)) };
    // It looks whether there is a better one as often as it looks whether the server lives.
    let silence_max = Duration::from_millis(1500);
    let client = Client::connect(Options { silence_max, ..options }).unwrap();
    assert!(client.is_read_only());
    wait_until(|| !client.is_read_only());
    let _writer = served.join().unwrap();
}

#[test]
fn commits_are_heard_while_a_better_server_is_searched_for() {
    let folder = tempfile::tempdir().unwrap();
    let (_listener, silent) = silent(folder.path());
    let path = folder.path().join("reader");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || {
        let mut peer = Peer::accept(&listener);
        admit_reader(&mut peer, Tid(10));
        // The search asks this server too.
        refuse_writer(&mut Peer::accept(&listener));
        peer.invalidate(Tid(11), &[Oid(1)]);
        peer
    });
    let options = Options { access: Access::Fallback, ..Options::new(Address::Unix(path)) };
    let addresses = vec![options.addresses[0].clone(), silent];
    let client = Client::connect(Options { addresses, ..options }).unwrap();
    let _peer = served.join().unwrap();
    let begin = Instant::now();
    wait_until(|| client.last_tid() == Tid(11));
    client.close();
    // The search goes on for far longer.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_client_that_may_commit_looks_for_no_better_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("writer");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || {
        let mut peer = Peer::admitted(&listener, Tid(10));
        // The client asks a server that is silent at its second look at the connection.
        peer.expect("ping");
        listener.set_nonblocking(true).unwrap();
        let second = listener.accept().err().map(|error| error.kind());
        assert_eq!(second, Some(ErrorKind::WouldBlock), "it connects again");
    });
    let options = Options { access: Access::Fallback, ..Options::new(Address::Unix(path)) };
    let silence_max = Duration::from_millis(1500);
    let client = Client::connect(Options { silence_max, ..options }).unwrap();
    assert!(!client.is_read_only());
    served.join().unwrap();
}

/// The older server is always the first that answers.
#[test]
fn a_server_with_an_older_database_does_not_keep_clients_from_others() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["good", "older"].map(|name| folder.path().join(name));
    let [good, older] = paths.clone().map(|path| move || UnixListener::bind(path).unwrap());
    let listener = good();
    let served = thread::spawn(move || {
        let peer = Peer::admitted(&listener, Tid(10));
        let older = older();
        drop(peer);
        let answered = thread::spawn(move || {
            let mut peer = Peer::accept(&older);
            let register = peer.expect("register");
            peer.reply(&register, Tid(5).into());
            peer.expect_end();
        });
        let mut peer = Peer::accept(&listener);
        let register = peer.expect("register");
        answered.join().unwrap();
        peer.reply(&register, Tid(10).into());
        let asked = peer.expect("get_info");
        peer.reply(&asked, Value::dict::<&str>([]));
        let ping = peer.expect("ping");
        peer.reply(&ping, Value::None);
    });
    let addresses = paths.map(Address::Unix).to_vec();
    let first = addresses[0].clone();
    let client = Client::connect(Options { addresses, ..Options::new(first) }).unwrap();
    wait_until(|| !client.is_connected());
    client.sync().unwrap();
    served.join().unwrap();
}

#[test]
fn servers_that_are_all_absent_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["one", "two"].map(|name| absent(folder.path(), name)).to_vec();
    let first = addresses[0].clone();
    let options = Options { addresses, wait_timeout: SHORT, ..Options::new(first) };
    let error = Client::connect(options).err().unwrap();
    let folder = folder.path().display().to_string();
    assert!(error.to_string().contains(&folder), "{error}");
}

#[test]
fn a_server_that_hangs_up_during_the_handshake_may_want_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeo");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            drop(connection);
        }
    });
    let options = Options { wait_timeout: SHORT, ..Options::new(Address::Unix(path)) };
    let error = Client::connect(options).err().unwrap();
    assert!(error.to_string().contains("does it speak TLS?"), "{error}");
}

#[test]
fn without_a_connection_a_client_is_as_writable_as_its_best_server_may_be() {
    let folder = tempfile::tempdir().unwrap();
    for (access, is_read_only) in
        [(Access::ReadWrite, false), (Access::Fallback, true), (Access::ReadOnly, true)]
    {
        let options = Options::new(absent(folder.path(), "none"));
        let options = Options { access, wait: false, wait_timeout: SHORT, ..options };
        let client = Client::connect(options).unwrap();
        assert_eq!(client.is_read_only(), is_read_only, "{access:?}");
        let refused = client.new_oid().unwrap_err();
        match access {
            // It stays so.
            Access::ReadOnly => assert!(matches!(refused, ClientError::ReadOnly), "{refused:?}"),
            // There may be a server later.
            _ => assert!(matches!(refused, ClientError::Unreachable { .. }), "{refused:?}"),
        }
    }
}

#[test]
fn a_kept_cache_belongs_to_the_servers_that_the_client_used_last() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Encoding::Msgpack);
    let options = Options { cache_path: Some(folder.path().join("c")), ..server.options() };
    let client = Client::connect(options.clone()).unwrap();
    commit(&client, &[(1, "one")]);
    let moved = vec![Address::Unix(server.path()), absent(folder.path(), "standby")];
    client.set_addresses(moved.clone()).unwrap();
    client.sync().unwrap();
    assert_eq!(client.load_current(Oid(1)).unwrap().data, crate::common::record("one"));
    client.close();
    let kept = |options| Client::connect(options).unwrap().cache_metrics().objects;
    assert_eq!(kept(Options { addresses: moved, ..options.clone() }), 1);
    assert_eq!(kept(options), 0);
}
