//! `places`: no path of somebody's machine, no host of a package registry.
//!
//! The first is of no use to anybody else; the second belongs to the tools' own settings, where a
//! mirror can take its place. The names are put together here so that this file does not break
//! its own rule.

use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "places";

const HOSTS: [&str; 8] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pypi.python", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".com"),
    concat!("npmjs", ".org"),
    concat!("rubygems", ".org"),
    concat!("proxy.golang", ".org"),
];

const HOMES: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Lines that name a place which only some machines have.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    source.lines().flat_map(|(line, text)| check_line(source, line, text)).collect()
}

fn check_line(source: &Source, line: usize, text: &str) -> Vec<Violation> {
    let hosts = HOSTS.iter().filter(|host| text.to_ascii_lowercase().contains(**host));
    let hosts = hosts.map(|host| format!("{host}: name the package or the tool instead"));
    let homes = HOMES.iter().filter(|home| begins_a_path(text, home));
    let homes = homes.map(|home| format!("{home}: a path that others do not have, cut it"));
    hosts.chain(homes).map(|advice| source.violation(line, RULE, advice)).collect()
}

/// If an absolute path begins with `home`: it is not in the middle of another path or a URL.
fn begins_a_path(text: &str, home: &str) -> bool {
    text.match_indices(home).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && !"_-.~/*})".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_registries_are_found_wherever_they_stand() {
        for host in HOSTS {
            for text in [host.to_owned(), format!("https://{host}/x"), host.to_uppercase()] {
                assert!(!check(&Source::of("README.md", &text)).is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn paths_of_machines_are_found() {
        for home in HOMES {
            for text in [format!("{home}me"), format!("cd {home}me"), format!("'{home}me'")] {
                assert_eq!(check(&Source::of("a.py", &text)).len(), 1, "{text}");
            }
        }
    }

    #[test]
    fn the_same_names_inside_other_paths_are_fine() {
        for home in HOMES {
            for text in [format!("var{home}x"), format!("..{home}x"), format!("{{path}}{home}x")] {
                assert_eq!(check(&Source::of("a.py", &text)), [], "{text}");
            }
        }
    }
}
