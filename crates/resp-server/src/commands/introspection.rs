//! `COMMAND`: what the table of commands says, and the help of commands with subcommands.

use zodium_resp::OwnedRequest;

use super::{Command, Keys, all, find, flags, groups, named, sort};
use crate::call::{Call, is};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::glob;
use crate::reply::Reply;

pub(super) fn command(call: &mut Call) -> Outcome {
    call.reply.array(all().count());
    all().for_each(|command| describe(&mut call.reply, (command.name, command)));
    Ok(())
}

pub(super) fn command_count(call: &mut Call) -> Outcome {
    call.reply.count(all().count());
    Ok(())
}

pub(super) fn command_info(call: &mut Call) -> Outcome {
    if call.len() == 2 {
        return command(call);
    }
    let names = call.arguments.from(2);
    call.reply.array(names.len());
    for name in names.iter() {
        match by_full_name(name) {
            Some((name, command)) => describe(&mut call.reply, (&name, command)),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// The command `name`, or `parent|name`, and its name in lower case.
fn by_full_name(name: &[u8]) -> Option<(String, &'static Command)> {
    let command = match name.iter().position(|byte| *byte == b'|') {
        Some(place) => named(&name[..place])?.subcommand(&name[place + 1..])?,
        None => named(name)?,
    };
    Some((String::from_utf8_lossy(name).to_ascii_lowercase(), command))
}

/// Whether a command, given with its full name, is listed.
type Filter = dyn Fn(&str, &Command) -> bool;

pub(super) fn command_list(call: &mut Call) -> Outcome {
    let fits: Box<Filter> = match call.len() {
        2 => Box::new(|_, _| true),
        5 if is(call.word(2), "filterby") && is(call.word(3), "pattern") => {
            let pattern = call.word(4).to_vec();
            Box::new(move |name, _| glob::fits_any_case(&pattern, name.as_bytes()))
        }
        5 if is(call.word(2), "filterby") && is(call.word(3), "aclcat") => {
            let category = String::from_utf8_lossy(call.word(4)).to_ascii_lowercase();
            Box::new(move |name, command| categories(name, command).contains(&category))
        }
        5 if is(call.word(2), "filterby") && is(call.word(3), "module") => Box::new(|_, _| false),
        _ => return Err(SYNTAX),
    };
    let names = all().flat_map(|command| {
        let subcommands = command.subcommands.iter();
        let named = subcommands.map(|sub| (format!("{}|{}", command.name, sub.name), sub));
        std::iter::once((command.name.to_owned(), command)).chain(named)
    });
    let names: Vec<String> =
        names.filter(|(name, command)| fits(name, command)).map(|(name, _)| name).collect();
    call.reply.words(&names);
    Ok(())
}

pub(super) fn command_docs(call: &mut Call) -> Outcome {
    let names = call.arguments.from(2);
    let chosen: Vec<String> = match names.len() {
        0 => all().map(|command| command.name.to_owned()).collect(),
        _ => names.iter().filter_map(by_full_name).map(|(name, _)| name).collect(),
    };
    call.reply.map(chosen.len());
    for name in chosen {
        call.reply.text(&name);
        call.reply.map(1);
        call.reply.text("group");
        call.reply.text(group_of(&name));
    }
    Ok(())
}

/// The group of a command, or of the command that it is a part of.
fn group_of(name: &str) -> &'static str {
    let name = name.split('|').next().unwrap_or(name);
    let has = |commands: &[Command]| commands.iter().any(|command| command.name == name);
    groups().iter().find(|(_, commands)| has(commands)).map_or("generic", |(group, _)| group)
}

pub(super) fn command_getkeys(call: &mut Call) -> Outcome {
    let request: OwnedRequest = call.arguments.from(2).iter().collect();
    let arguments = request.arguments();
    let command = find(arguments).map_err(|fail| match fail.0.contains("wrong number") {
        true => Fail::fixed("ERR Invalid number of arguments specified for command"),
        false => Fail::fixed("ERR Invalid command specified"),
    })?;
    if matches!(command.keys, Keys::None | Keys::All | Keys::Watched) {
        return Err(Fail::fixed("ERR The command has no key arguments"));
    }
    let mut keys: Vec<&[u8]> = command.keys_of(arguments).collect();
    if command.name == "sort" {
        keys.extend(sort::target(arguments));
    }
    if keys.is_empty() && !command.is_script() {
        return Err(Fail::fixed("ERR Invalid arguments specified for command"));
    }
    call.reply.words(&keys);
    Ok(())
}

pub(super) fn command_help(call: &mut Call) -> Outcome {
    help(
        call,
        "COMMAND",
        &[
            ("(no subcommand)", "Return details about all commands."),
            ("COUNT", "Return the total number of commands in this server."),
            ("DOCS [<command-name> ...]", "Return the groups of commands."),
            ("GETKEYS <full-command>", "Return the keys from a full command."),
            ("INFO [<command-name> ...]", "Return details about multiple commands."),
            ("LIST [FILTERBY (ACLCAT|PATTERN|MODULE) <value>]", "Return the names of commands."),
        ],
    );
    Ok(())
}

/// One command, as `COMMAND INFO` has it.
fn describe(reply: &mut Reply, (name, command): (&str, &Command)) {
    reply.array(10);
    reply.text(name);
    reply.integer(i64::from(command.arity));
    let names: Vec<&str> =
        flags::NAMES.iter().filter(|(flag, _)| command.has(*flag)).map(|(_, name)| *name).collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
    let (first, last, step) = match command.keys {
        Keys::Range(first, last, step) => (first, last, step),
        Keys::FirstAndCounted | Keys::FirstOfAll => (1, 1, 1),
        Keys::None
        | Keys::Streams(_)
        | Keys::Counted(_)
        | Keys::CountedOfAll(_)
        | Keys::All
        | Keys::Watched => (0, 0, 0),
    };
    reply.count(first);
    reply.integer(i64::from(last));
    reply.count(step);
    let categories = categories(name, command);
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    // Tips, and specifications of keys: none.
    reply.array(0);
    reply.array(0);
    reply.array(command.subcommands.len());
    for command in &command.subcommands {
        describe(reply, (&format!("{name}|{}", command.name), command));
    }
}

/// The categories of a command, without `@`.
fn categories(name: &str, command: &Command) -> Vec<String> {
    let group = match group_of(name) {
        "generic" => "keyspace",
        "sorted-set" => "sortedset",
        "transactions" => "transaction",
        "server" => "admin",
        other => other,
    };
    let mut found = Vec::new();
    for (flag, name) in [
        (flags::WRITE, "write"),
        (flags::READONLY, "read"),
        (flags::BLOCKING, "blocking"),
        (flags::PUBSUB, "pubsub"),
    ] {
        if command.has(flag) {
            found.push(name.to_owned());
        }
    }
    found.push(if command.has(flags::FAST) { "fast" } else { "slow" }.to_owned());
    if !found.iter().any(|name| name == group) {
        found.push(group.to_owned());
    }
    if command.has(flags::ADMIN) {
        found.push("dangerous".to_owned());
    }
    found
}

/// Answers the help of a command with subcommands.
pub(super) fn help(call: &mut Call, name: &str, subcommands: &[(&str, &str)]) {
    let first = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    call.reply.array(2 * subcommands.len() + 3);
    call.reply.simple(&first);
    for (usage, what) in subcommands {
        call.reply.simple(usage);
        call.reply.simple(&format!("    {what}"));
    }
    call.reply.simple("HELP");
    call.reply.simple("    Print this help.");
}
