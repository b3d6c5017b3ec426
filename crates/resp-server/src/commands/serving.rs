//! Databases as a whole, and the server itself: `FLUSHALL`, `SWAPDB`, `TIME`, `SHUTDOWN`.

use zodium_keyspace::{DATABASES, now_in_microseconds};
use zodium_resp::parse_integer;

use super::introspection::help;
use super::keys::database;
use crate::call::{Call, is};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::memory::drop_elsewhere;

pub(super) fn dbsize(call: &mut Call) -> Outcome {
    let keys = call.hold.len();
    call.reply.count(keys);
    Ok(())
}

/// Whether the option of a flush, if there is one, is right. Both kinds do the same.
fn check_flush(call: &Call) -> Outcome {
    match call.len() {
        1 => Ok(()),
        2 if is(call.word(1), "sync") || is(call.word(1), "async") => Ok(()),
        _ => Err(SYNTAX),
    }
}

pub(super) fn flushdb(call: &mut Call) -> Outcome {
    check_flush(call)?;
    drop_elsewhere(call.hold.flush());
    call.reply.ok();
    Ok(())
}

pub(super) fn flushall(call: &mut Call) -> Outcome {
    check_flush(call)?;
    let selected = call.hold.database;
    for database in 0..DATABASES {
        call.hold.database = database;
        drop_elsewhere(call.hold.flush());
    }
    call.hold.database = selected;
    call.reply.ok();
    Ok(())
}

pub(super) fn swapdb(call: &mut Call) -> Outcome {
    for (place, which) in [(1, "first"), (2, "second")] {
        let error = || Fail::text(format!("ERR invalid {which} DB index"));
        call.integer(place).map_err(|_| error())?;
    }
    let (one, other) = (database(call.word(1))?, database(call.word(2))?);
    if one != other {
        call.hold.swap(one, other);
        for database in [one, other] {
            // Commands may wait for keys that the other database had.
            call.hold.news.filled.extend(call.server.waiting.keys_of(database));
        }
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn time(call: &mut Call) -> Outcome {
    let time = call.hold.frozen.unwrap_or_else(now_in_microseconds);
    call.reply.array(2);
    call.reply.text(&(time / 1_000_000).to_string());
    call.reply.text(&(time % 1_000_000).to_string());
    Ok(())
}

pub(super) fn role(call: &mut Call) -> Outcome {
    call.reply.array(3);
    call.reply.text("master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

pub(super) fn wait(call: &mut Call) -> Outcome {
    call.integer(1)?;
    let timeout = parse_integer(call.word(2));
    let timeout = timeout.ok_or(Fail::fixed("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Fail::fixed("ERR timeout is negative"));
    }
    // There are no replicas.
    call.reply.integer(0);
    Ok(())
}

pub(super) fn shutdown(call: &mut Call) -> Outcome {
    let options = ["save", "nosave", "now", "force", "safe", "failover"];
    let mut words = call.arguments.from(1).iter();
    let has = |name: &str| call.arguments.from(1).iter().any(|word| is(word, name));
    if call.len() == 2 && has("abort") {
        return Err(Fail::fixed("ERR No shutdown in progress."));
    }
    if words.any(|word| !options.iter().any(|option| is(word, option))) {
        return Err(SYNTAX);
    }
    match (has("save"), has("nosave")) {
        (true, true) => return Err(SYNTAX),
        (true, false) => {
            return Err(Fail::fixed("ERR SHUTDOWN SAVE is refused: nothing is saved to disk"));
        }
        (false, _) => {}
    }
    if !call.server.settings.may_shut_down {
        return Err(Fail::fixed(
            "ERR SHUTDOWN is refused: this process serves databases too, stop it with SIGTERM",
        ));
    }
    tracing::info!("SHUTDOWN of a client, stopping");
    let stopped =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    stopped.map_err(|error| Fail::text(format!("ERR cannot stop: {error}")))
}

pub(super) fn function_flush(call: &mut Call) -> Outcome {
    if call.len() > 3 || call.len() == 3 && !is(call.word(2), "sync") && !is(call.word(2), "async")
    {
        return Err(Fail::fixed("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    // There are no functions.
    call.reply.ok();
    Ok(())
}

pub(super) fn function_help(call: &mut Call) -> Outcome {
    help(call, "FUNCTION", &[("FLUSH [ASYNC|SYNC]", "Delete all the libraries: there are none.")]);
    Ok(())
}

pub(super) fn cluster(_: &mut Call) -> Outcome {
    Err(Fail::fixed("ERR This instance has cluster support disabled"))
}

pub(super) fn readonly(call: &mut Call) -> Outcome {
    call.reply.ok();
    Ok(())
}

pub(super) fn acl_whoami(call: &mut Call) -> Outcome {
    call.reply.text("default");
    Ok(())
}
