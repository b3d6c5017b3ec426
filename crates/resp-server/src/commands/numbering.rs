//! All commands, made from the rows of the table, each with its number.

use std::sync::LazyLock;

use super::Command;
use super::table::{self, Row};

/// The groups of the documentation, each with its commands.
static GROUPS: LazyLock<Vec<(&'static str, Vec<Command>)>> = LazyLock::new(|| {
    let mut next = 0;
    let groups = table::GROUPS.iter();
    groups.map(|(name, rows)| (*name, numbered(rows, None, &mut next))).collect()
});

/// The commands of some rows, with their subcommands. `next` is the number of the next command.
fn numbered(rows: &'static [Row], parent: Option<&str>, next: &mut usize) -> Vec<Command> {
    let command = |&Row { name, arity, flags, keys, run, awaits, subcommands }: &Row| {
        let number = *next;
        *next += 1;
        let subcommands = numbered(subcommands, Some(name), next);
        // These live as long as the table of commands.
        let full_name = parent.map_or(name, |parent| format!("{parent}|{name}").leak());
        Command { number, name, full_name, arity, flags, keys, run, awaits, subcommands }
    };
    rows.iter().map(command).collect()
}

/// The groups of the documentation, each with its commands.
pub(crate) fn groups() -> &'static [(&'static str, Vec<Command>)] {
    &GROUPS
}

/// All commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(|(_, commands)| commands)
}

/// The names of all commands and subcommands, by number: `get`, `client|list`.
pub(crate) fn numbered_names() -> impl Iterator<Item = &'static str> {
    let commands = all().flat_map(|command| std::iter::once(command).chain(&command.subcommands));
    commands.map(|command| command.full_name)
}

/// Number of commands and subcommands.
pub(crate) fn count() -> usize {
    all().map(|command| 1 + command.subcommands.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::named;

    #[test]
    fn each_command_has_the_number_of_its_name() {
        let names: Vec<&str> = numbered_names().collect();
        assert_eq!(names.len(), count());
        for command in all() {
            assert_eq!(names[command.number], command.name);
            assert_eq!(named(command.name.as_bytes()).unwrap().number, command.number);
            for subcommand in &command.subcommands {
                let name = format!("{}|{}", command.name, subcommand.name);
                assert_eq!(names[subcommand.number], name);
            }
        }
    }
}
