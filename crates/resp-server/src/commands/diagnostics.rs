//! Diagnosis that clients and tools ask for: `SLOWLOG`, `LATENCY`, `MODULE`. There is nothing to
//! tell, so that their answers are empty.

use zodium_resp::parse_integer;

use super::introspection::help;
use crate::call::Call;
use crate::fail::{Fail, Outcome};

pub(super) fn empty(call: &mut Call) -> Outcome {
    call.reply.array(0);
    Ok(())
}

pub(super) fn zero(call: &mut Call) -> Outcome {
    call.reply.count(0);
    Ok(())
}

pub(super) fn ok(call: &mut Call) -> Outcome {
    call.reply.ok();
    Ok(())
}

pub(super) fn slowlog_get(call: &mut Call) -> Outcome {
    let count = (call.len() > 2).then(|| parse_integer(call.word(2)));
    if call.len() > 3 {
        return Err(Fail::fixed(
            "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ));
    }
    if count.is_some_and(|count| count.is_none_or(|count| count < -1)) {
        return Err(Fail::fixed("ERR count should be greater than or equal to -1"));
    }
    empty(call)
}

pub(super) fn slowlog_help(call: &mut Call) -> Outcome {
    let subcommands = [
        ("GET [<count>]", "Return the slow log: it is empty."),
        ("LEN", "Return the length of the slow log: 0."),
        ("RESET", "Reset the slow log: there is nothing to do."),
    ];
    help(call, "SLOWLOG", &subcommands);
    Ok(())
}

pub(super) fn latency_graph(call: &mut Call) -> Outcome {
    let event = String::from_utf8_lossy(call.word(2));
    Err(Fail::text(format!("ERR No samples available for event '{event}'")))
}

pub(super) fn latency_help(call: &mut Call) -> Outcome {
    let subcommands = [
        ("GRAPH <event>", "Return a graph of time-latency samples: there are none."),
        ("HISTORY <event>", "Return time-latency samples: none."),
        ("LATEST", "Return the latest latency samples: none."),
        ("RESET [<event> ...]", "Reset latency data: there is nothing to do."),
    ];
    help(call, "LATENCY", &subcommands);
    Ok(())
}

pub(super) fn module_help(call: &mut Call) -> Outcome {
    help(call, "MODULE", &[("LIST", "Return a list of loaded modules: there are none.")]);
    Ok(())
}
