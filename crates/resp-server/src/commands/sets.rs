//! Sets: members, and choosing some of them.

use zodium_keyspace::{Set, Word};

use super::hashes::{check_answer, check_repeats, choose, count_or_one};
use crate::call::Call;
use crate::events::Class;
use crate::fail::{Outcome, SYNTAX};

pub(super) fn sadd(call: &mut Call) -> Outcome {
    let (key, members) = (call.word(1), call.arguments.from(2));
    let set = call.hold.make::<Set>(key)?;
    let added = members.iter().filter(|member| set.add(member)).count();
    if added > 0 {
        call.changed(key, Class::Set, "sadd");
    }
    call.reply.count(added);
    Ok(())
}

pub(super) fn srem(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let Some(set) = call.hold.write::<Set>(key)? else {
        call.reply.count(0);
        return Ok(());
    };
    let removed = call.arguments.from(2).iter().filter(|member| set.remove(member)).count();
    if removed > 0 {
        call.changed(key, Class::Set, "srem");
        call.remove_if_empty::<Set>(key);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn scard(call: &mut Call) -> Outcome {
    let length = call.hold.read::<Set>(call.word(1))?.map_or(0, Set::len);
    call.reply.count(length);
    Ok(())
}

pub(super) fn sismember(call: &mut Call) -> Outcome {
    let set = call.hold.read::<Set>(call.word(1))?;
    let is_member = set.is_some_and(|set| set.contains(call.arguments.word(2)));
    call.reply.flag(is_member);
    Ok(())
}

pub(super) fn smismember(call: &mut Call) -> Outcome {
    let set = call.hold.read::<Set>(call.word(1))?;
    let members = call.arguments.from(2);
    call.reply.array(members.len());
    for member in members.iter() {
        call.reply.flag(set.is_some_and(|set| set.contains(member)));
    }
    Ok(())
}

pub(super) fn smembers(call: &mut Call) -> Outcome {
    let set = call.hold.read::<Set>(call.word(1))?;
    call.reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| call.reply.bulk(member));
    Ok(())
}

pub(super) fn smove(call: &mut Call) -> Outcome {
    let (source, target, member) = (call.word(1), call.word(2), call.word(3));
    let is_member = match call.hold.read::<Set>(source)? {
        Some(set) => set.contains(member),
        // The other key is not even looked at.
        None => {
            call.reply.flag(false);
            return Ok(());
        }
    };
    call.hold.read::<Set>(target)?;
    if !is_member || source == target {
        call.reply.flag(is_member);
        return Ok(());
    }
    if let Some(set) = call.hold.write::<Set>(source)? {
        set.remove(member);
    }
    call.changed(source, Class::Set, "srem");
    call.remove_if_empty::<Set>(source);
    if call.hold.make::<Set>(target)?.add(member) {
        call.changed(target, Class::Set, "sadd");
    }
    call.reply.flag(true);
    Ok(())
}

pub(super) fn srandmember(call: &mut Call) -> Outcome {
    let key = call.word(1);
    if call.len() == 2 {
        let member = call.hold.read::<Set>(key)?.and_then(Set::random);
        call.reply.bulk_or_null(member);
        return Ok(());
    }
    if call.len() > 3 {
        return Err(SYNTAX);
    }
    let count = call.integer(2)?;
    check_repeats(count)?;
    let set = call.hold.read::<Set>(key)?;
    let found = set.map(|set| choose(count, set.len(), set.iter(), || set.random(), |word| word));
    check_answer(call, count, found.iter().flatten().map(|member| member.len()))?;
    call.reply.words(&found.unwrap_or_default());
    Ok(())
}

pub(super) fn spop(call: &mut Call) -> Outcome {
    let key = call.word(1);
    if call.len() > 3 {
        return Err(SYNTAX);
    }
    let count = count_or_one(call, 2)?;
    let taken = match call.hold.write::<Set>(key)? {
        Some(set) => {
            let wanted = i64::try_from(count.unwrap_or(1)).unwrap_or(i64::MAX);
            let chosen: Vec<&[u8]> = match count {
                None => set.random().into_iter().collect(),
                Some(_) => choose(wanted, set.len(), set.iter(), || set.random(), |word| word),
            };
            let chosen: Vec<Word> = chosen.into_iter().map(Word::from).collect();
            for member in &chosen {
                set.remove(member);
            }
            chosen
        }
        None => Vec::new(),
    };
    if !taken.is_empty() {
        call.log_instead([&b"srem"[..], key].into_iter().chain(taken.iter().map(|word| &**word)));
        call.changed(key, Class::Set, "spop");
        call.remove_if_empty::<Set>(key);
    }
    match count {
        None => call.reply.bulk_or_null(taken.first()),
        Some(_) => {
            call.reply.set(taken.len());
            taken.iter().for_each(|member| call.reply.bulk(member));
        }
    }
    Ok(())
}
