//! The connection: `HELLO`, `AUTH`, `CLIENT` and the like.

use std::sync::atomic::Ordering;

use zodium_keyspace::now;
use zodium_net::CloseReason;
use zodium_resp::{Version, parse_integer};

use super::Request;
use super::chosen_clients::Chosen;
use super::info::presented;
use super::keys::database;
use crate::call::{Call, Options, is};
use crate::client::{Client, Facts, Replies};
use crate::dispatch::After;
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::local::Letter;
use crate::parting::forget;
use crate::server::Server;

const WRONG_PASSWORD: Fail =
    Fail::fixed("WRONGPASS invalid username-password pair or user is disabled.");

pub(super) fn ping(call: &mut Call) -> Outcome {
    if call.len() > 2 {
        return Err(Fail::arity("ping"));
    }
    let is_subscriber = call.client.is_some_and(Client::is_restricted);
    match (call.len(), is_subscriber) {
        (_, true) => {
            call.reply.array(2);
            call.reply.text("pong");
            call.reply.bulk(call.arguments.word(1));
        }
        (1, false) => call.reply.simple("PONG"),
        _ => call.reply.bulk(call.arguments.word(1)),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call) -> Outcome {
    call.reply.bulk(call.arguments.word(1));
    Ok(())
}

pub(super) fn select(call: &mut Call) -> Outcome {
    let number = database(call.word(1))?;
    call.client()?.select(number);
    call.reply.ok();
    Ok(())
}

pub(super) fn quit(Request { reply, .. }: Request) -> Result<After, Fail> {
    reply.ok();
    Ok(After::Close)
}

pub(super) fn reset(Request { local, client, reply, .. }: Request) -> Result<After, Fail> {
    forget(&local.server, client);
    client.is_authenticated.set(local.server.settings.is_open());
    client.database.set(0);
    client.replies.set(Replies::On);
    client.keeps_uses.set(false);
    client.set_version(reply, Version::Two);
    let mut facts = client.shared.facts.lock();
    // The library is that of the connection, and stays.
    let Facts { library_name, library_version, .. } = std::mem::take(&mut *facts);
    *facts =
        Facts { library_name, library_version, queued: -1, command: "reset", ..Facts::default() };
    drop(facts);
    reply.simple("RESET");
    Ok(After::Continue)
}

pub(super) fn monitor(Request { local, client, reply, .. }: Request) -> Result<After, Fail> {
    if !client.is_monitor.replace(true) {
        local.server.clients.enter_monitor();
        client.shared.facts.lock().is_monitor = true;
    }
    reply.ok();
    Ok(After::Continue)
}

/// Checks a password. All clients are the same user, `default`.
fn authenticate(server: &Server, client: &Client, user: &[u8], given: &[u8]) -> Outcome {
    let password = server.settings.password();
    // All bytes are compared, so that the time tells nothing about them.
    let differences = password.bytes().zip(given).fold(0, |all, (one, other)| all | (one ^ other));
    let is_it = differences == 0 && password.len() == given.len();
    if user != b"default" || !(password.is_empty() || is_it) {
        return Err(WRONG_PASSWORD);
    }
    client.is_authenticated.set(true);
    Ok(())
}

pub(super) fn auth(call: &mut Call) -> Outcome {
    let client = call.client()?;
    let (user, password) = match call.len() {
        2 if call.server.settings.is_open() => {
            return Err(Fail::fixed(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        2 => (&b"default"[..], call.word(1)),
        3 => (call.word(1), call.word(2)),
        _ => return Err(SYNTAX),
    };
    authenticate(call.server, client, user, password)?;
    call.reply.ok();
    Ok(())
}

pub(super) fn hello(call: &mut Call) -> Outcome {
    let client = call.client()?;
    let version = match call.len() {
        1 => client.version.get(),
        _ => match parse_integer(call.word(1)) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err(Fail::fixed("NOPROTO unsupported protocol version")),
            None => {
                return Err(Fail::fixed("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let (mut user, mut name) = (None, None);
    let mut options = Options::from(call.arguments, 2);
    while let Some(word) = options.next() {
        if is(word, "auth") && options.left() >= 2 {
            user = Some((options.value()?, options.value()?));
        } else if is(word, "setname") && options.left() >= 1 {
            name = Some(checked_name(options.value()?)?);
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(Fail::text(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if let Some((user, password)) = user {
        authenticate(call.server, client, user, password)?;
    }
    if !client.is_authenticated.get() {
        return Err(Fail::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client.shared.facts.lock().name = name;
    }
    client.set_version(&mut call.reply, version);
    let (name, number) = presented(call.server);
    let reply = &mut call.reply;
    reply.map(7);
    reply.text("server");
    reply.text(name);
    reply.text("version");
    reply.text(number);
    reply.text("proto");
    reply.integer(if version == Version::Two { 2 } else { 3 });
    reply.text("id");
    reply.integer(i64::try_from(client.id()).unwrap_or(0));
    reply.text("mode");
    reply.text("standalone");
    reply.text("role");
    reply.text("master");
    reply.text("modules");
    reply.array(0);
    Ok(())
}

pub(super) fn client_id(call: &mut Call) -> Outcome {
    let id = call.client()?.id();
    call.reply.integer(i64::try_from(id).unwrap_or(0));
    Ok(())
}

pub(super) fn client_getname(call: &mut Call) -> Outcome {
    let name = call.client()?.shared.facts.lock().name.clone();
    call.reply.bulk_or_null(Some(name).filter(|name| !name.is_empty()));
    Ok(())
}

/// A name without spaces and signs that cannot be seen: it is a part of a line.
fn checked_name(word: &[u8]) -> Result<String, Fail> {
    let text = std::str::from_utf8(word).ok();
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    text.map(str::to_owned).ok_or(Fail::fixed(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

pub(super) fn client_setname(call: &mut Call) -> Outcome {
    call.client()?.shared.facts.lock().name = checked_name(call.word(2))?;
    call.reply.ok();
    Ok(())
}

pub(super) fn client_setinfo(call: &mut Call) -> Outcome {
    let (option, value) = (call.word(2), call.word(3));
    let shown = String::from_utf8_lossy(option);
    let checked = || {
        checked_name(value).map_err(|_| {
            Fail::text(format!(
                "ERR {shown} cannot contain spaces, newlines or special characters."
            ))
        })
    };
    let mut facts = call.client()?.shared.facts.lock();
    if is(option, "lib-name") {
        facts.library_name = checked()?;
    } else if is(option, "lib-ver") {
        facts.library_version = checked()?;
    } else {
        return Err(Fail::text(format!("ERR Unrecognized option '{shown}'")));
    }
    drop(facts);
    call.reply.ok();
    Ok(())
}

pub(super) fn client_info(call: &mut Call) -> Outcome {
    let line = call.client()?.shared.line(now());
    call.reply.verbatim(&format!("{line}\n"));
    Ok(())
}

pub(super) fn client_list(call: &mut Call) -> Outcome {
    let options = Options::from(call.arguments, 2);
    // No client has the id 0.
    let chosen = Chosen::read(options, call.client.map_or(0, Client::id), false)?;
    let now = now();
    let mut clients = call.server.clients.all();
    clients.retain(|client| chosen.has(client, now));
    clients.sort_unstable_by_key(|client| client.id);
    let lines: String = clients.iter().map(|client| format!("{}\n", client.line(now))).collect();
    call.reply.verbatim(&lines);
    Ok(())
}

pub(super) fn client_kill(call: &mut Call) -> Outcome {
    let me = call.client()?;
    let chosen = match call.len() {
        3 => Chosen::at(call.word(2)),
        _ => Chosen::read(Options::from(call.arguments, 2), me.id(), true)?,
    };
    let now = now();
    let mut killed = 0;
    for client in call.server.clients.all() {
        if !chosen.has(&client, now) {
            continue;
        }
        killed += 1;
        client.is_killed.store(true, Ordering::Relaxed);
        match client.id == me.id() {
            // After the answer.
            true => me.link.close(CloseReason::Done),
            false => {
                let worker = client.worker.load(Ordering::Relaxed);
                call.server.clients.send(worker, Letter::Kill { client: client.id });
            }
        }
    }
    match (call.len(), killed) {
        (3, 0) => return Err(Fail::fixed("ERR No such client")),
        (3, _) => call.reply.ok(),
        _ => call.reply.count(killed),
    }
    Ok(())
}

pub(super) fn client_unblock(call: &mut Call) -> Outcome {
    let id = call.integer(2)?;
    let is_error = match call.len() {
        3 => false,
        4 if is(call.word(3), "timeout") => false,
        4 if is(call.word(3), "error") => true,
        _ => {
            return Err(Fail::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let client = u64::try_from(id).ok().and_then(|id| call.server.clients.find(id));
    // It leaves at once: commands after this one must not serve it any more.
    let waiting = &call.server.waiting;
    let left = client
        .filter(|client| waiting.of_client(client.id).is_some_and(|waiter| waiting.leave(&waiter)));
    if let Some(client) = &left {
        let worker = client.worker.load(Ordering::Relaxed);
        call.server.clients.send(worker, Letter::Unblocked { client: client.id, is_error });
    }
    call.reply.flag(left.is_some());
    Ok(())
}

pub(super) fn client_reply(
    Request { client, arguments, reply, .. }: Request,
) -> Result<After, Fail> {
    let mode = arguments.word(2);
    if is(mode, "on") {
        client.replies.set(Replies::On);
        reply.ok();
    } else if is(mode, "off") {
        client.replies.set(Replies::Off);
    } else if is(mode, "skip") {
        if client.replies.get() != Replies::Off {
            client.replies.set(Replies::SkipNext);
        }
    } else {
        return Err(SYNTAX);
    }
    Ok(After::Continue)
}

pub(super) fn client_no_evict(call: &mut Call) -> Outcome {
    let (is_on, is_off) = (is(call.word(2), "on"), is(call.word(2), "off"));
    if !is_on && !is_off {
        return Err(SYNTAX);
    }
    call.client()?.shared.facts.lock().no_evict = is_on;
    call.reply.ok();
    Ok(())
}

pub(super) fn client_no_touch(call: &mut Call) -> Outcome {
    let (is_on, is_off) = (is(call.word(2), "on"), is(call.word(2), "off"));
    if !is_on && !is_off {
        return Err(SYNTAX);
    }
    let client = call.client()?;
    client.shared.facts.lock().no_touch = is_on;
    client.keeps_uses.set(is_on);
    call.reply.ok();
    Ok(())
}

pub(super) fn client_help(call: &mut Call) -> Outcome {
    super::introspection::help(
        call,
        "CLIENT",
        &[
            ("GETNAME", "Return the name of the current connection."),
            ("ID", "Return the ID of the current connection."),
            ("INFO", "Return information about the current client connection."),
            ("KILL <option> ...", "Kill connections: ID, ADDR, TYPE, USER, MAXAGE, SKIPME."),
            ("LIST <option> ...", "List connections: ID, ADDR, TYPE, USER, MAXAGE, SKIPME."),
            ("NO-EVICT (ON|OFF)", "Protect current client connection from eviction."),
            ("NO-TOUCH (ON|OFF)", "Will not touch LRU/LFU stats when this mode is on."),
            (
                "PAUSE <timeout> [WRITE|ALL]",
                "Suspend all, or just write, clients for <timeout> ms.",
            ),
            ("REPLY (ON|OFF|SKIP)", "Control the replies sent to the current connection."),
            ("SETINFO <option> <value>", "Set client meta attr: LIB-NAME, LIB-VER."),
            ("SETNAME <name>", "Assign the name <name> to the current connection."),
            ("CACHING (YES|NO)", "Enable/disable tracking of the keys for next command."),
            ("GETREDIR", "Return the client ID we are redirecting to when tracking is enabled."),
            ("TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] ...", "Control client-side caching."),
            ("TRACKINGINFO", "Report tracking status for the current connection."),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "Unblock the specified blocked client."),
            ("UNPAUSE", "Stop the current client pause, resuming traffic."),
        ],
    );
    Ok(())
}
