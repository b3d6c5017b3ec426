//! Publishing: `SUBSCRIBE`, `PUBLISH` and the like.

use zodium_keyspace::Word;

use super::Request;
use crate::call::Call;
use crate::client::Client;
use crate::dispatch::After;
use crate::fail::{Fail, Outcome};
use crate::glob;
use crate::publishing::{Kind, Subscriber};
use crate::reply::Reply;

pub(super) fn publish(call: &mut Call) -> Outcome {
    if call.server.beside.is_stream(call.word(1)) {
        return Err(Fail::fixed("ERR channels that begin with 'zodb:' are those of storages"));
    }
    // A receiver may read what was changed before.
    call.invalidate_readers();
    let receivers =
        call.server.publishing.publish(&call.server.clients, call.word(1), call.word(2));
    call.reply.count(receivers);
    Ok(())
}

pub(super) fn subscribe(request: Request) -> Result<After, Fail> {
    add(request, Kind::Channels, "subscribe")
}

pub(super) fn psubscribe(request: Request) -> Result<After, Fail> {
    add(request, Kind::Patterns, "psubscribe")
}

fn add(request: Request, kind: Kind, word: &str) -> Result<After, Fail> {
    let Request { local, client, arguments, reply } = request;
    if kind == Kind::Channels {
        let mut names = arguments.from(1).iter();
        names.try_for_each(|name| local.server.beside.check_channel(client, name))?;
    }
    for name in arguments.from(1).iter() {
        let mut subscriptions = client.subscriptions.borrow_mut();
        let is_new = match kind {
            Kind::Channels => subscriptions.channels.insert(name.into()),
            Kind::Patterns => subscriptions.patterns.insert(name.into()),
        };
        let count = subscriptions.count();
        drop(subscriptions);
        if is_new {
            let subscriber = Subscriber { client: client.id(), worker: local.number };
            local.server.publishing.subscribe(kind, name, subscriber);
        }
        answer(reply, word, Some(name), count);
    }
    note(client);
    Ok(After::Continue)
}

pub(super) fn unsubscribe(request: Request) -> Result<After, Fail> {
    take(request, Kind::Channels, "unsubscribe")
}

pub(super) fn punsubscribe(request: Request) -> Result<After, Fail> {
    take(request, Kind::Patterns, "punsubscribe")
}

fn take(request: Request, kind: Kind, word: &str) -> Result<After, Fail> {
    let Request { local, client, arguments, reply } = request;
    let all: Vec<Word> = match kind {
        Kind::Channels => client.subscriptions.borrow().channels.iter().cloned().collect(),
        Kind::Patterns => client.subscriptions.borrow().patterns.iter().cloned().collect(),
    };
    let names: Vec<Word> = match arguments.len() {
        1 => all,
        _ => arguments.from(1).iter().map(Word::from).collect(),
    };
    if names.is_empty() {
        answer(reply, word, None, client.subscriptions.borrow().count());
    }
    for name in names {
        let mut subscriptions = client.subscriptions.borrow_mut();
        let was_there = match kind {
            Kind::Channels => subscriptions.channels.remove(&name),
            Kind::Patterns => subscriptions.patterns.remove(&name),
        };
        let count = subscriptions.count();
        drop(subscriptions);
        if was_there {
            local.server.publishing.unsubscribe(kind, &name, client.id());
        }
        answer(reply, word, Some(&name), count);
    }
    note(client);
    Ok(After::Continue)
}

fn answer(reply: &mut Reply, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.text(word);
    reply.bulk_or_null(name);
    reply.count(count);
}

fn note(client: &Client) {
    let subscriptions = client.subscriptions.borrow();
    let mut facts = client.shared.facts.lock();
    facts.subscriptions = subscriptions.channels.len();
    facts.patterns = subscriptions.patterns.len();
}

pub(super) fn pubsub_channels(call: &mut Call) -> Outcome {
    if call.len() > 3 {
        return Err(Fail::fixed(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ));
    }
    let pattern = (call.len() == 3).then(|| call.word(2));
    let fits = |name: &[u8]| pattern.is_none_or(|pattern| glob::fits(pattern, name));
    let names = call.server.publishing.channels(fits);
    call.reply.words(&names);
    Ok(())
}

pub(super) fn pubsub_numsub(call: &mut Call) -> Outcome {
    let names = call.arguments.from(2);
    let counts = call.server.publishing.subscribers_of(names.iter());
    call.reply.array(2 * names.len());
    for (name, count) in names.iter().zip(counts) {
        call.reply.bulk(name);
        call.reply.count(count);
    }
    Ok(())
}

pub(super) fn pubsub_numpat(call: &mut Call) -> Outcome {
    let (_, patterns) = call.server.publishing.counts();
    call.reply.count(patterns);
    Ok(())
}

pub(super) fn pubsub_help(call: &mut Call) -> Outcome {
    super::introspection::help(
        call,
        "PUBSUB",
        &[
            ("CHANNELS [<pattern>]", "Return the currently active channels matching a <pattern>."),
            ("NUMPAT", "Return number of subscriptions to patterns."),
            (
                "NUMSUB [<channel> ...]",
                "Return the number of subscribers for the specified channels.",
            ),
        ],
    );
    Ok(())
}
