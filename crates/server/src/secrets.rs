//! Keeps passwords of databases out of the list of processes.
//!
//! A password on the command line can be read by all users of the machine. So the program starts
//! itself again, in the same process, with the password in its environment, which only its own user
//! can read. It is on the command line for some milliseconds: an option file is better.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use zodium_sql::MariaAddress;

use crate::streams::complain;

/// Options whose value is a database, in `zodium neo storage`.
const OPTIONS: [&str; 2] = ["-d", "--database"];

/// Starts the program again, if its command line has the password of a database.
pub(crate) fn leave_the_command_line(arguments: &[OsString]) {
    let is_program = arguments.iter().eq(std::env::args_os().collect::<Vec<_>>().iter());
    if !is_program {
        return;
    }
    let variable = MariaAddress::PASSWORD_VARIABLE;
    let given = std::env::var(variable).ok();
    let (cleaned, password) = match cleaned(arguments, given.as_deref()) {
        Found::One(cleaned, password) => (cleaned, password),
        Found::Different => {
            return complain!(
                "zodium: passwords stay on the command line, where all users of this machine can \
                 read them, since they differ, or {variable} has another one: give option files \
                 (`?defaults_file=PATH`)"
            );
        }
        Found::Nothing => return,
    };
    let (Ok(program), Some(name)) = (std::env::current_exe(), cleaned.first()) else { return };
    let mut command = Command::new(program);
    command.arg0(name).args(&cleaned[1..]);
    // It comes back only with an error: then the password is seen, and all works.
    let _ = command.env(variable, password).exec();
}

/// What a command line has.
#[derive(Debug, PartialEq)]
enum Found {
    /// No password.
    Nothing,
    /// Passwords that differ, or one that differs from that of the environment, which has a place
    /// for one.
    Different,
    /// The command line without its password, and the password.
    One(Vec<OsString>, String),
}

/// Looks for passwords. `given` is the one of the environment, for addresses without one.
fn cleaned(arguments: &[OsString], given: Option<&str>) -> Found {
    let is_server = arguments
        .iter()
        .any(|word| word.to_str().is_some_and(|word| word.to_ascii_lowercase().ends_with("mysql")));
    let (mut cleaned, mut found): (Vec<OsString>, Option<String>) = (Vec::new(), None);
    let mut before: &OsStr = OsStr::new("");
    for word in arguments {
        let is_value = OPTIONS.iter().any(|option| before == *option);
        before = word;
        let text = word.to_str().unwrap_or_default();
        let (option, value) = match text.split_once('=') {
            Some((option, value)) if option == OPTIONS[1] => (Some(option), value),
            _ => (None, text),
        };
        let is_address =
            MariaAddress::is_url(value) || (is_server && (is_value || option.is_some()));
        let Some((address, password)) =
            is_address.then(|| MariaAddress::split_password(value)).flatten()
        else {
            cleaned.push(word.clone());
            continue;
        };
        if found.as_deref().or(given).is_some_and(|other| other != password) {
            return Found::Different;
        }
        found = Some(password);
        cleaned.push(option.map_or(address.clone(), |option| format!("{option}={address}")).into());
    }
    found.map_or(Found::Nothing, |password| Found::One(cleaned, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(line: &str) -> Found {
        cleaned(&words(line), None)
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn passwords_go_and_other_words_stay() {
        let both = |line: &str, password: &str| Found::One(words(line), password.to_owned());
        assert_eq!(after("z serve mysql://u:p@h/d -a 1"), both("z serve mysql://u@h/d -a 1", "p"));
        let neo = "z neo storage -a MySQL -c c -d";
        assert_eq!(after(&format!("{neo} u:p@d")), both(&format!("{neo} u@d"), "p"));
        assert_eq!(
            after("z neo storage --adapter=mysql --database=u:p@d/s"),
            both("z neo storage --adapter=mysql --database=u@d/s", "p")
        );
        assert_eq!(after("z copy mysql://u:p@h/d mysql://u:q@h/e"), Found::Different);
        let copy = words("z copy mysql://u@h/d mysql://u:q@h/e");
        assert_eq!(cleaned(&copy, Some("p")), Found::Different);
        assert!(matches!(cleaned(&copy, Some("q")), Found::One(..)));
        assert_eq!(after("z neo storage -d u:p@d"), Found::Nothing);
        assert_eq!(after("z serve Data.fs -a 1"), Found::Nothing);
    }
}
