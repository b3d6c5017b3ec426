//! Keeps passwords of databases out of the list of processes.
//!
//! A password on the command line can be read by all users of the machine. So the program starts
//! itself again, in the same process, with the password in its environment, which only its own user
//! can read. It is on the command line for some milliseconds: an option file is better.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use zodium_sql::MariaAddress;

/// Options whose value is a database, in `zodium neo storage`.
const OPTIONS: [&str; 2] = ["-d", "--database"];

/// Starts the program again, if its command line has the password of a database.
pub(crate) fn leave_the_command_line(arguments: &[OsString]) {
    let is_program = arguments.iter().eq(std::env::args_os().collect::<Vec<_>>().iter());
    let Some((cleaned, password)) = cleaned(arguments).filter(|_| is_program) else { return };
    let (Ok(program), Some(name)) = (std::env::current_exe(), cleaned.first()) else { return };
    let mut command = Command::new(program);
    command.arg0(name).args(&cleaned[1..]);
    // It comes back only with an error: then the password is seen, and all works.
    let _ = command.env(MariaAddress::PASSWORD_VARIABLE, password).exec();
}

/// The command line without its password, and the password. Of several passwords that differ all
/// stay.
fn cleaned(arguments: &[OsString]) -> Option<(Vec<OsString>, String)> {
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
        if found.as_ref().is_some_and(|found| *found != password) {
            return None;
        }
        found = Some(password);
        cleaned.push(option.map_or(address.clone(), |option| format!("{option}={address}")).into());
    }
    found.map(|password| (cleaned, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(words: &str) -> Option<(String, String)> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let (words, password) = cleaned(&words)?;
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        Some((words.join(" "), password))
    }

    #[test]
    fn passwords_go_and_other_words_stay() {
        let both = |words: &str, password: &str| Some((words.to_owned(), password.to_owned()));
        assert_eq!(after("z serve mysql://u:p@h/d -a 1"), both("z serve mysql://u@h/d -a 1", "p"));
        let neo = "z neo storage -a MySQL -c c -d";
        assert_eq!(after(&format!("{neo} u:p@d")), both(&format!("{neo} u@d"), "p"));
        assert_eq!(
            after("z neo storage --adapter=mysql --database=u:p@d/s"),
            both("z neo storage --adapter=mysql --database=u@d/s", "p")
        );
        assert_eq!(after("z copy mysql://u:p@h/d mysql://u:q@h/e"), None);
        assert_eq!(after("z neo storage -d u:p@d"), None);
        assert_eq!(after("z serve Data.fs -a 1"), None);
    }
}
