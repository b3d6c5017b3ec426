//! Scripts: `EVAL`, `EVALSHA` and their read-only kin, and `SCRIPT`.

use std::sync::Arc;

use super::introspection::help;
use crate::call::{Call, is};
use crate::fail::{Fail, NO_INTEGER, Outcome};
use crate::scripting::{self, Digest, Script, Wish};

const NO_SCRIPT: Fail = Fail::fixed("NOSCRIPT No matching script.");

pub(super) fn eval(call: &mut Call) -> Outcome {
    run_source(call, false)
}

pub(super) fn eval_ro(call: &mut Call) -> Outcome {
    run_source(call, true)
}

pub(super) fn evalsha(call: &mut Call) -> Outcome {
    run_known(call, false)
}

pub(super) fn evalsha_ro(call: &mut Call) -> Outcome {
    run_known(call, true)
}

/// The number of keys.
fn keys(call: &Call) -> Result<usize, Fail> {
    let count = zodium_resp::parse_integer(call.word(2)).ok_or(NO_INTEGER)?;
    let count =
        usize::try_from(count).map_err(|_| Fail::fixed("ERR Number of keys can't be negative"))?;
    match count > call.len() - 3 {
        true => Err(Fail::fixed("ERR Number of keys can't be greater than number of args")),
        false => Ok(count),
    }
}

fn run_source(call: &mut Call, is_readonly: bool) -> Outcome {
    let (keys, source) = (keys(call)?, call.word(1));
    let digest = Digest::of(source);
    let known = call.server.scripts.known(digest);
    let is_new = known.is_none();
    let script = &known.unwrap_or_else(|| Script { digest, source: Arc::from(source) });
    scripting::run(call, &Wish { script, keys, is_readonly, is_new })
}

fn run_known(call: &mut Call, is_readonly: bool) -> Outcome {
    let keys = keys(call)?;
    let script = &call.server.scripts.find(call.word(1)).ok_or(NO_SCRIPT)?;
    scripting::run(call, &Wish { script, keys, is_readonly, is_new: false })
}

pub(super) fn script_load(call: &mut Call) -> Outcome {
    let source = call.word(2);
    let script = Script { digest: Digest::of(source), source: Arc::from(source) };
    scripting::check(call.server, &script)?;
    call.server.scripts.add(&script, true);
    call.reply.text(script.digest.as_str());
    Ok(())
}

pub(super) fn script_exists(call: &mut Call) -> Outcome {
    let digests = call.arguments.from(2);
    call.reply.array(digests.len());
    for digest in digests.iter() {
        call.reply.flag(call.server.scripts.find(digest).is_some());
    }
    Ok(())
}

pub(super) fn script_show(call: &mut Call) -> Outcome {
    let script = call.server.scripts.find(call.word(2)).ok_or(NO_SCRIPT)?;
    call.reply.bulk(&script.source);
    Ok(())
}

pub(super) fn script_flush(call: &mut Call) -> Outcome {
    if call.len() > 3 || call.len() == 3 && !is(call.word(2), "sync") && !is(call.word(2), "async")
    {
        return Err(Fail::fixed("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    call.server.scripts.flush();
    call.reply.ok();
    Ok(())
}

pub(super) fn script_kill(call: &mut Call) -> Outcome {
    call.server.scripts.running.kill()?;
    call.reply.ok();
    Ok(())
}

pub(super) fn script_help(call: &mut Call) -> Outcome {
    help(
        call,
        "SCRIPT",
        &[
            ("EXISTS <sha1> [<sha1> ...]", "Return information about the existence of scripts."),
            ("FLUSH [ASYNC|SYNC]", "Flush the scripts cache."),
            ("KILL", "Kill the currently executing script, if it has written nothing."),
            ("LOAD <script>", "Load a script into the scripts cache without executing it."),
            ("SHOW <sha1>", "Show a script in the scripts cache."),
        ],
    );
    Ok(())
}
