//! `CLIENT TRACKING`, `CACHING`, `GETREDIR` and `TRACKINGINFO`: caches of clients.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use zodium_keyspace::Word;
use zodium_resp::Arguments;

use super::Request;
use crate::call::{Options, integer, is};
use crate::client::Client;
use crate::dispatch::After;
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::server::Server;
use crate::tracked::{Reads, Tracked};

const NEEDS_BROADCAST: Fail = Fail::fixed("ERR PREFIX option requires BCAST mode to be enabled");
const SWITCHES_BROADCAST: Fail = Fail::fixed(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
     re-enabling it with a different mode.",
);
const SWITCHES_READS: Fail = Fail::fixed(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
     re-enabling it with a different mode.",
);
const BROADCAST_READS: Fail = Fail::fixed("ERR OPTIN and OPTOUT are not compatible with BCAST");
const BOTH_READS: Fail = Fail::fixed("ERR You can't specify both OPTIN mode and OPTOUT mode");
const TWO_TARGETS: Fail = Fail::fixed("ERR A client can only redirect to a single other client");
const NO_TARGET: Fail = Fail::fixed("ERR The client ID you want redirect to does not exist");
const CACHING_OFF: Fail = Fail::fixed(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
     OPTOUT mode enabled",
);
const NOT_OPT_IN: Fail =
    Fail::fixed("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
const NOT_OPT_OUT: Fail =
    Fail::fixed("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");

/// The options of `CLIENT TRACKING`.
#[derive(Default)]
struct Wish {
    redirect: Option<u64>,
    is_broadcast: bool,
    opts_in: bool,
    opts_out: bool,
    skips_own: bool,
    prefixes: Vec<Word>,
}

impl Wish {
    fn parse(server: &Server, arguments: Arguments) -> Result<Wish, Fail> {
        let mut wish = Wish::default();
        let mut options = Options::from(arguments, 3);
        while let Some(word) = options.next() {
            if is(word, "redirect") && options.left() > 0 {
                if wish.redirect.is_some() {
                    return Err(TWO_TARGETS);
                }
                let target = u64::try_from(integer(options.value()?)?).map_err(|_| NO_TARGET)?;
                if server.clients.find(target).is_none() {
                    return Err(NO_TARGET);
                }
                wish.redirect = Some(target);
            } else if is(word, "bcast") {
                wish.is_broadcast = true;
            } else if is(word, "optin") {
                wish.opts_in = true;
            } else if is(word, "optout") {
                wish.opts_out = true;
            } else if is(word, "noloop") {
                wish.skips_own = true;
            } else if is(word, "prefix") && options.left() > 0 {
                wish.prefixes.push(options.value()?.into());
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(wish)
    }

    /// What the client gets, beside what it has.
    fn checked(self, before: Option<&Tracked>) -> Result<Tracked, Fail> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err(NEEDS_BROADCAST);
        }
        if before.is_some_and(|old| (old.reads == Reads::Broadcast) != self.is_broadcast) {
            return Err(SWITCHES_BROADCAST);
        }
        let reads = match (self.is_broadcast, self.opts_in, self.opts_out) {
            (true, false, false) => Reads::Broadcast,
            (true, _, _) => return Err(BROADCAST_READS),
            (false, true, true) => return Err(BOTH_READS),
            (false, true, false) => Reads::OptIn,
            (false, false, true) => Reads::OptOut,
            (false, false, false) => Reads::All,
        };
        let old = before.map(|old| old.reads);
        if matches!(
            (old, reads),
            (Some(Reads::OptOut), Reads::OptIn) | (Some(Reads::OptIn), Reads::OptOut)
        ) {
            return Err(SWITCHES_READS);
        }
        let mut prefixes = before.map(|old| old.prefixes.clone()).unwrap_or_default();
        check_overlaps(&prefixes, &self.prefixes)?;
        if self.is_broadcast && self.prefixes.is_empty() {
            prefixes.insert(Word::default());
        }
        prefixes.extend(self.prefixes);
        let (redirect, skips_own) = (self.redirect.unwrap_or(0), self.skips_own);
        Ok(Tracked { redirect, reads, skips_own, prefixes, is_broken: false })
    }
}

/// Checks that no key begins with two of a client's prefixes: it would be told twice.
fn check_overlaps(old: &BTreeSet<Word>, new: &[Word]) -> Outcome {
    let overlap = |one: &Word, other: &Word| one.starts_with(other) || other.starts_with(one);
    let error = |one: &Word, kind, other: &Word| {
        let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
        Fail::text(format!(
            "ERR Prefix '{one}' overlaps with {kind} prefix '{other}'. Prefixes for a single \
             client must not overlap."
        ))
    };
    for (place, prefix) in new.iter().enumerate() {
        if let Some(other) = old.iter().find(|other| overlap(prefix, other)) {
            return Err(error(prefix, "an existing", other));
        }
        if let Some(other) = new[place + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(error(prefix, "another provided", other));
        }
    }
    Ok(())
}

pub(super) fn client_tracking(
    Request { local, client, arguments, reply }: Request,
) -> Result<After, Fail> {
    let server = &local.server;
    let wish = Wish::parse(server, arguments)?;
    if is(arguments.word(2), "on") {
        let tracked = wish.checked(client.tracked.borrow().as_ref())?;
        if let Some(target) = server.clients.find(tracked.redirect) {
            target.is_target.store(true, Ordering::Relaxed);
        }
        server.tracking.track(client, local.number, tracked);
    } else if is(arguments.word(2), "off") {
        server.tracking.untrack(client);
    } else {
        return Err(SYNTAX);
    }
    reply.ok();
    Ok(After::Continue)
}

pub(super) fn client_caching(
    Request { client, arguments, reply, .. }: Request,
) -> Result<After, Fail> {
    let reads = client.tracked.borrow().as_ref().map(|tracked| tracked.reads);
    let reads = reads.ok_or(CACHING_OFF)?;
    let (wanted, error) = match arguments.word(2) {
        word if is(word, "yes") => (Reads::OptIn, NOT_OPT_IN),
        word if is(word, "no") => (Reads::OptOut, NOT_OPT_OUT),
        _ => return Err(SYNTAX),
    };
    if reads != wanted {
        return Err(error);
    }
    client.is_caching.set(true);
    reply.ok();
    Ok(After::Continue)
}

pub(super) fn client_getredir(Request { client, reply, .. }: Request) -> Result<After, Fail> {
    reply.integer(redirect(client));
    Ok(After::Continue)
}

/// The client that gets a client's invalidations: 0 for itself, -1 for none.
fn redirect(client: &Client) -> i64 {
    let redirect = client.tracked.borrow().as_ref().map(|tracked| tracked.redirect);
    redirect.map_or(-1, |redirect| i64::try_from(redirect).unwrap_or(0))
}

pub(super) fn client_trackinginfo(Request { client, reply, .. }: Request) -> Result<After, Fail> {
    let tracked = client.tracked.borrow();
    let is_caching = client.is_caching.get();
    let mut flags = Vec::new();
    let mut prefixes: Vec<&Word> = Vec::new();
    match &*tracked {
        None => flags.push("off"),
        Some(tracked) => {
            flags.push("on");
            let (of_reads, of_caching) = match tracked.reads {
                Reads::All => (None, None),
                Reads::Broadcast => (Some("bcast"), None),
                Reads::OptIn => (Some("optin"), Some("caching-yes")),
                Reads::OptOut => (Some("optout"), Some("caching-no")),
            };
            flags.extend(of_reads);
            flags.extend(of_caching.filter(|_| is_caching));
            flags.extend(tracked.skips_own.then_some("noloop"));
            flags.extend(tracked.is_broken.then_some("broken_redirect"));
            prefixes.extend(&tracked.prefixes);
        }
    }
    reply.map(3);
    reply.text("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.text(flag));
    reply.text("redirect");
    reply.integer(redirect(client));
    reply.text("prefixes");
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(After::Continue)
}
