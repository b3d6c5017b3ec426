//! Which clients `CLIENT LIST` shows, and `CLIENT KILL` ends.

use zodium_resp::parse_integer;

use crate::call::{Options, is};
use crate::client::ClientShared;
use crate::fail::{Fail, SYNTAX};

/// Clients that options choose: those that all options fit.
#[derive(Default)]
pub(super) struct Chosen {
    ids: Vec<u64>,
    address: Option<String>,
    kind: Option<String>,
    /// The client itself, which is not chosen.
    skipped: Option<u64>,
    /// Seconds since the connection, at least.
    age_min: Option<u64>,
}

impl Chosen {
    /// The client with an address.
    pub(super) fn at(address: &[u8]) -> Chosen {
        let address = Some(String::from_utf8_lossy(address).into_owned());
        Chosen { address, ..Chosen::default() }
    }

    /// Reads the options of the client with an id. An option may say otherwise than `skips_me`.
    pub(super) fn read(mut options: Options, me: u64, mut skips_me: bool) -> Result<Chosen, Fail> {
        let mut chosen = Chosen::default();
        while let Some(word) = options.next() {
            let value = options.value()?;
            let text = || String::from_utf8_lossy(value).into_owned();
            if is(word, "id") {
                chosen.ids.push(id(parse_integer(value).ok_or(SYNTAX)?)?);
                while let Some(number) = options.peek().and_then(parse_integer) {
                    chosen.ids.push(id(number)?);
                    options.next();
                }
            } else if is(word, "addr") {
                chosen.address = Some(text());
            } else if is(word, "laddr") {
                return Err(Fail::fixed(
                    "ERR LADDR is not known: leave it out, or choose clients by ID or ADDR",
                ));
            } else if is(word, "type") {
                chosen.kind = Some(kind(value)?);
            } else if is(word, "user") {
                // All clients are this one.
                if value != b"default" {
                    return Err(Fail::text(format!("ERR No such user '{}'", text())));
                }
            } else if is(word, "maxage") {
                chosen.age_min = Some(age(value)?);
            } else if is(word, "skipme") && (is(value, "yes") || is(value, "no")) {
                skips_me = is(value, "yes");
            } else {
                return Err(SYNTAX);
            }
        }
        chosen.skipped = skips_me.then_some(me);
        Ok(chosen)
    }

    /// Whether a client is one of them.
    pub(super) fn has(&self, client: &ClientShared, now: u64) -> bool {
        let facts = client.facts.lock();
        let kind = if facts.subscriptions + facts.patterns > 0 { "pubsub" } else { "normal" };
        let age = now.saturating_sub(client.connected_at) / 1000;
        (self.ids.is_empty() || self.ids.contains(&client.id))
            && self.address.as_ref().is_none_or(|address| *address == client.peer)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
            && self.age_min.is_none_or(|least| age >= least)
            && self.skipped != Some(client.id)
    }
}

fn id(number: i64) -> Result<u64, Fail> {
    let id = u64::try_from(number).ok().filter(|id| *id > 0);
    id.ok_or(Fail::fixed("ERR client-id should be greater than 0"))
}

fn age(word: &[u8]) -> Result<u64, Fail> {
    let seconds = parse_integer(word);
    let seconds = seconds.ok_or(Fail::fixed("ERR maxage is not an integer or out of range"))?;
    let age = u64::try_from(seconds).ok().filter(|age| *age > 0);
    age.ok_or(Fail::fixed("ERR maxage should be greater than 0"))
}

/// A kind of clients, in lower case.
fn kind(word: &[u8]) -> Result<String, Fail> {
    let name = String::from_utf8_lossy(word).to_ascii_lowercase();
    match ["normal", "master", "primary", "replica", "slave", "pubsub"].contains(&&*name) {
        true => Ok(name),
        false => Err(Fail::text(format!("ERR Unknown client type '{name}'"))),
    }
}
