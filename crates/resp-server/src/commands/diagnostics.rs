//! Diagnosis that clients and tools ask for: `SLOWLOG`, `LATENCY`, `MODULE`. There is nothing to
//! tell, so that their answers are empty.

use super::introspection::help;
use crate::call::Call;
use crate::fail::Outcome;

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

pub(super) fn slowlog_help(call: &mut Call) -> Outcome {
    let subcommands = [
        ("GET [<count>]", "Return the slow log: it is empty."),
        ("LEN", "Return the length of the slow log: 0."),
        ("RESET", "Reset the slow log: there is nothing to do."),
    ];
    help(call, "SLOWLOG", &subcommands);
    Ok(())
}

pub(super) fn latency_help(call: &mut Call) -> Outcome {
    let subcommands = [
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
