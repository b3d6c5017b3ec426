//! Taking over entries of other consumers: `XCLAIM`, `XAUTOCLAIM`.

use zodium_keyspace::{Group, Pending, Sight, Stream, StreamId};
use zodium_resp::parse_integer;

use super::stream_options::{answer_entry, bound, id, no_group};
use crate::call::{Call, Options, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

/// How entries are taken over.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// Least time since the last delivery, in milliseconds.
    idle_min: u64,
    /// When they count as delivered, if not now.
    delivered_at: Option<u64>,
    count: Option<u64>,
    /// Also entries that no consumer has.
    forces: bool,
    only_ids: bool,
    last: StreamId,
}

fn idle_min(word: &[u8], command: &str) -> Result<u64, Fail> {
    let number = parse_integer(word)
        .ok_or_else(|| Fail::text(format!("ERR Invalid min-idle-time argument for {command}")))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// The options of `XCLAIM`, from a place on.
fn options(call: &Call, place: usize, idle_min: u64) -> Result<Claim, Fail> {
    let mut claim = Claim { idle_min, ..Claim::default() };
    let mut options = Options::from(call.arguments, place);
    let now = call.hold.now;
    while let Some(word) = options.next() {
        let number = |options: &mut Options, name: &str| {
            let number = parse_integer(options.value()?);
            number
                .ok_or_else(|| Fail::text(format!("ERR Invalid {name} option argument for XCLAIM")))
        };
        if is(word, "force") {
            claim.forces = true;
        } else if is(word, "justid") {
            claim.only_ids = true;
        } else if is(word, "idle") && options.left() > 0 {
            let idle = u64::try_from(number(&mut options, "IDLE")?).unwrap_or(0);
            claim.delivered_at = Some(now.saturating_sub(idle));
        } else if is(word, "time") && options.left() > 0 {
            let time = u64::try_from(number(&mut options, "TIME")?).unwrap_or(now);
            claim.delivered_at = Some(time.min(now));
        } else if is(word, "retrycount") && options.left() > 0 {
            claim.count = u64::try_from(number(&mut options, "RETRYCOUNT")?).ok();
        } else if is(word, "lastid") && options.left() > 0 {
            claim.last = id(options.value()?, 0)?;
        } else {
            let name = String::from_utf8_lossy(word).into_owned();
            return Err(Fail::text(format!("ERR Unrecognized XCLAIM option '{name}'")));
        }
    }
    Ok(claim)
}

impl Claim {
    /// Gives an entry to a consumer, unless another one has got it too recently.
    fn take(&self, group: &mut Group, id: StreamId, consumer: &[u8], now: u64) -> bool {
        let before = match group.pending.get(id) {
            None if !self.forces => return false,
            // An entry that no consumer had counts as delivered once.
            None => 1,
            Some(pending) if now.saturating_sub(pending.delivered_at) < self.idle_min => {
                return false;
            }
            Some(pending) => pending.count,
        };
        let count = self.count.unwrap_or_else(|| before.saturating_add(u64::from(!self.only_ids)));
        let delivered_at = self.delivered_at.unwrap_or(now);
        group.pending.put(id, Pending { consumer: consumer.into(), delivered_at, count });
        true
    }
}

/// The group of a command, or the error that there is none.
fn check_group(call: &Call) -> Outcome {
    let (key, name) = (call.word(1), call.word(2));
    let stream = call.hold.read::<Stream>(key)?;
    match stream.is_some_and(|stream| stream.groups.contains_key(name)) {
        true => Ok(()),
        false => Err(no_group(call, key, name, "")),
    }
}

pub(super) fn xclaim(call: &mut Call) -> Outcome {
    check_group(call)?;
    let idle_min = idle_min(call.word(4), "XCLAIM")?;
    let ids: Vec<StreamId> =
        call.arguments.from(5).iter().map_while(|word| id(word, 0).ok()).collect();
    let claim = options(call, 5 + ids.len(), idle_min)?;
    let taken = work(call, |stream, group, consumer, now| {
        group.last = group.last.max(claim.last);
        let mut taken = Vec::new();
        for id in ids {
            if stream.get(id).is_none() {
                group.pending.remove(id);
            } else if claim.take(group, id, consumer, now) {
                taken.push(id);
            }
        }
        (!taken.is_empty(), taken)
    })?;
    answer_taken(call, &taken, claim.only_ids)
}

pub(super) fn xautoclaim(call: &mut Call) -> Outcome {
    let idle_min = idle_min(call.word(4), "XAUTOCLAIM")?;
    let start = bound(call.word(5), true)?;
    let mut claim = Claim { idle_min, ..Claim::default() };
    let mut count = 100;
    let mut options = Options::from(call.arguments, 6);
    while let Some(word) = options.next() {
        if is(word, "count") && options.left() > 0 {
            let number = parse_integer(options.value()?).filter(|number| *number > 0);
            let number = number.and_then(|number| usize::try_from(number).ok());
            count = number.ok_or(Fail::fixed("ERR COUNT must be > 0"))?;
        } else if is(word, "justid") {
            claim.only_ids = true;
        } else {
            return Err(SYNTAX);
        }
    }
    check_group(call)?;
    let (cursor, taken, gone) = work(call, |stream, group, consumer, now| {
        let found = claim_from(&claim, stream, group, (start, count), (consumer, now));
        (!found.1.is_empty(), found)
    })?;
    call.reply.array(3);
    call.reply.text(&cursor.to_string());
    answer_taken(call, &taken, claim.only_ids)?;
    call.reply.array(gone.len());
    gone.iter().for_each(|id| call.reply.text(&id.to_string()));
    Ok(())
}

/// Takes over up to `count` entries. Returns where to go on, what was taken, and what is not
/// there any more.
fn claim_from(
    claim: &Claim,
    stream: &Stream,
    group: &mut Group,
    (start, count): (StreamId, usize),
    (consumer, now): (&[u8], u64),
) -> (StreamId, Vec<StreamId>, Vec<StreamId>) {
    /// Entries that are looked at for each one that is wanted.
    const ATTEMPTS: usize = 10;
    let looked_at = count.saturating_mul(ATTEMPTS);
    let ids: Vec<StreamId> =
        group.pending.range(start..).map(|(id, _)| id).take(looked_at.saturating_add(1)).collect();
    let (mut taken, mut gone) = (Vec::new(), Vec::new());
    for (number, id) in ids.iter().enumerate() {
        if number == looked_at || taken.len() + gone.len() == count {
            return (*id, taken, gone);
        }
        if stream.get(*id).is_none() {
            group.pending.remove(*id);
            gone.push(*id);
        } else if claim.take(group, *id, consumer, now) {
            taken.push(*id);
        }
    }
    (StreamId::default(), taken, gone)
}

/// Has a consumer of the group do something with it; whether it was active, and a result.
fn work<T: Default>(
    call: &mut Call,
    work: impl FnOnce(&Stream, &mut Group, &[u8], u64) -> (bool, T),
) -> Result<T, Fail> {
    let (key, name, consumer, now) = (call.word(1), call.word(2), call.word(3), call.hold.now);
    let Some(stream) = call.hold.write::<Stream>(key)? else { return Ok(T::default()) };
    let Some((name, mut group)) = stream.groups.remove_entry(name) else { return Ok(T::default()) };
    let before = (group.last, group.pending.len());
    let sight = group.see(consumer, now);
    let (is_active, result) = work(stream, &mut group, consumer, now);
    if is_active {
        group.note_active(consumer, now);
    }
    let has_seen = sight != Sight::Again;
    let has_changed = has_seen || is_active || before != (group.last, group.pending.len());
    stream.groups.insert(name, group);
    if sight == Sight::First {
        call.announce(key, Class::Stream, "xgroup-createconsumer");
    }
    if has_changed {
        call.hold.changed_beside(key);
    }
    Ok(result)
}

fn answer_taken(call: &mut Call, ids: &[StreamId], only_ids: bool) -> Outcome {
    call.reply.array(ids.len());
    let stream = call.hold.read::<Stream>(call.word(1))?;
    for id in ids {
        match only_ids {
            true => call.reply.text(&id.to_string()),
            false => {
                let fields = stream.and_then(|stream| stream.get(*id));
                answer_entry(&mut call.reply, *id, fields);
            }
        }
    }
    Ok(())
}
