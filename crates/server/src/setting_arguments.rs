//! Options of the command line, made of the table of settings.

use std::collections::HashMap;
use std::ffi::OsString;
use std::marker::PhantomData;

use clap::builder::{
    OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser,
};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use zodium_configuration::{Configuration, SETTINGS, Setting, Settings};

/// Which settings a command has.
pub(crate) trait Selection: Default + 'static {
    /// Whether it has those of a table.
    fn has(settings: &Settings) -> bool;
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfServer;

impl Selection for OfServer {
    fn has(settings: &Settings) -> bool {
        !settings.are_for_nodes() && !settings.are_for_admins() && !settings.are_for_masters()
    }
}

/// The settings of a storage node of a NEO cluster.
#[derive(Debug, Default)]
pub(crate) struct OfNode;

impl Selection for OfNode {
    fn has(settings: &Settings) -> bool {
        settings.are_for_nodes() || settings.are_for_all()
    }
}

/// The settings of the admin of a NEO cluster.
#[derive(Debug, Default)]
pub(crate) struct OfAdmin;

impl Selection for OfAdmin {
    fn has(settings: &Settings) -> bool {
        settings.are_for_admins() || settings.are_for_all()
    }
}

/// The settings of a master of a NEO cluster.
#[derive(Debug, Default)]
pub(crate) struct OfMaster;

impl Selection for OfMaster {
    fn has(settings: &Settings) -> bool {
        settings.are_for_masters() || settings.are_for_all()
    }
}

/// The settings of a RESP server without storages, beside those that it has options for.
#[derive(Debug, Default)]
pub(crate) struct OfResp;

impl Selection for OfResp {
    fn has(settings: &Settings) -> bool {
        ["[log]", "[server.tls]", "[monitor]"].contains(&settings.header)
    }
}

/// The values of the options that were given, or set in the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingArguments<S> {
    given: HashMap<&'static str, Given>,
    selection: PhantomData<S>,
}

/// The values of an option.
#[derive(Clone, Debug)]
struct Given {
    texts: Vec<OsString>,
    is_of_environment: bool,
}

impl<S: Selection> SettingArguments<S> {
    /// Overrides the settings of a configuration.
    ///
    /// # Errors
    ///
    /// An option is for one storage, and there are several.
    pub(crate) fn apply(&self, configuration: &mut Configuration) -> Result<(), String> {
        self.apply_where(configuration, |_, _| true)
    }

    /// As [`SettingArguments::apply`], for storages of a configuration file, or for several.
    /// Variables of the environment for one storage, as an image sets them, are for another one:
    /// they do not count.
    ///
    /// # Errors
    ///
    /// As [`SettingArguments::apply`].
    pub(crate) fn apply_without_environment_of_one_storage(
        &self,
        configuration: &mut Configuration,
    ) -> Result<(), String> {
        self.apply_where(configuration, |setting, given| {
            !(given.is_of_environment && setting.description.is_for_one_storage)
        })
    }

    fn apply_where(
        &self,
        configuration: &mut Configuration,
        counts: impl Fn(&Setting, &Given) -> bool,
    ) -> Result<(), String> {
        options::<S>().try_for_each(|(_, setting)| {
            match self.given.get(setting.description.option) {
                Some(given) if counts(setting, given) => setting.apply(configuration, &given.texts),
                _ => Ok(()),
            }
        })
    }
}

impl<S: Selection> FromArgMatches for SettingArguments<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingArguments<S>, clap::Error> {
        let given = options::<S>().filter_map(|(_, setting)| {
            let option = setting.description.option;
            let is_of_environment = matches.value_source(option) == Some(ValueSource::EnvVariable);
            let texts = match setting.description.flag {
                "" => matches.get_many(option)?.cloned().collect(),
                means if matches.get_flag(option) => vec![means.into()],
                // The environment can say no, too: it overrides the file.
                _ if is_of_environment => vec![setting.default_shown()?.into()],
                _ => return None,
            };
            Some((option, Given { texts, is_of_environment }))
        });
        Ok(SettingArguments { given: given.collect(), selection: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SettingArguments::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Selection> Args for SettingArguments<S> {
    fn augment_args(command: Command) -> Command {
        command.args(options::<S>().map(|(group, setting)| argument(group, setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingArguments::<S>::augment_args(command)
    }
}

/// The settings that have options.
fn options<S: Selection>() -> impl Iterator<Item = (&'static Settings, &'static Setting)> {
    let settings = SETTINGS.iter().filter(|group| S::has(group));
    let settings = settings.flat_map(|group| group.settings.iter().map(move |s| (group, s)));
    settings.filter(|(_, setting)| !setting.description.option.is_empty())
}

fn argument(group: &Settings, setting: &'static Setting) -> Arg {
    let description = setting.description;
    let mut argument = Arg::new(description.option)
        .long(description.option)
        .short(description.short)
        .alias(description.alias)
        .help_heading(group.heading_of(setting));
    if !description.env.is_empty() {
        argument = argument.env(description.env);
    }
    let mut help = description.option_paragraphs();
    let is_flag = !description.flag.is_empty();
    if let Some(line) = help.first_mut().filter(|_| !is_flag) {
        line.push_str(if setting.values.is_list { "; may be repeated" } else { "" });
        let default = setting.default_shown();
        line.push_str(&default.map(|text| format!(" [default: {text}]")).unwrap_or_default());
    }
    argument = argument.help(help.first().cloned().unwrap_or_default());
    if help.len() > 1 {
        argument = argument.long_help(help.join("\n\n"));
    }
    if is_flag {
        return argument.action(ArgAction::SetTrue).value_parser(read_flag);
    }
    argument
        .value_name(description.value)
        .action(if setting.values.is_list { ArgAction::Append } else { ArgAction::Set })
        .value_hint(setting.values.is_path.then_some(ValueHint::AnyPath))
        .value_delimiter(description.separator)
        // The check of the value has the better error.
        .allow_negative_numbers(true)
        .ignore_case(!setting.values.words.is_empty())
        .value_parser(parser(setting))
}

/// Reads the word that the environment has for a flag. Others are refused: one may be a mistyped
/// `false`.
pub(crate) fn read_flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "t" | "y" => Ok(true),
        "" | "0" | "false" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err("give 1 or 0".to_owned()),
    }
}

/// Checks values, and leaves them as they are: they are read when they are applied.
fn parser(setting: &'static Setting) -> ValueParser {
    let words = &setting.values.words;
    if words.is_empty() {
        let check = |text| setting.check(&text).map(|()| text);
        return OsStringValueParser::new().try_map(check).into();
    }
    let words = words.iter().map(|(word, meaning)| PossibleValue::new(*word).help(*meaning));
    PossibleValuesParser::new(words).map(OsString::from).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zodium_configuration::{Checksums, Encoding, LogDestination, StorageKind, StorageOptions};

    use super::*;

    fn parse(words: &[&str]) -> Result<SettingArguments<OfServer>, clap::Error> {
        let command = Command::new("serve").no_binary_name(true);
        let command = SettingArguments::<OfServer>::augment_args(command);
        SettingArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    fn configuration(words: &[&str]) -> Configuration {
        let mut configuration = Configuration {
            storages: vec![StorageOptions::new("1", StorageKind::Memory)],
            ..Configuration::default()
        };
        parse(words).unwrap().apply(&mut configuration).unwrap();
        configuration
    }

    #[test]
    fn options_override_settings_of_every_group() {
        let server = configuration(&[
            "--msgpack",
            "--no-reopen",
            "--busy-poll=50",
            "-t5m",
            "--resolvable-class=a.A b.B",
            "--resolvable-class=c.C",
        ])
        .server;
        assert_eq!((server.encoding, server.reopen_after_failure), (Encoding::Msgpack, false));
        assert_eq!(server.busy_poll, Some(Duration::from_micros(50)));
        assert_eq!(server.transaction_timeout, Some(Duration::from_secs(300)));
        assert_eq!(server.resolvable_classes, ["a.A", "b.B", "c.C"]);
        let read = configuration(&[
            "--checksums=commit",
            "--scrub-interval=0",
            "--no-pack-gc",
            "--blob-dir=blobs",
            "--log-file=STDOUT",
            "--monitor=9100",
        ]);
        let storage = &read.storages[0];
        assert_eq!((storage.checksums, storage.scrub_interval), (Checksums::Commit, None));
        assert!(!storage.pack.garbage_collection && storage.pack.keep_old);
        assert_eq!(storage.blob_directory, Some("blobs".into()));
        assert_eq!(read.log.destinations, [LogDestination::Stdout]);
        assert_eq!(read.monitor.unwrap().address, "9100".parse().unwrap());
    }

    #[test]
    fn values_are_checked() {
        for (words, expected) in [
            ("--message-size-max=5GiB", "shorter than 4 GiB"),
            ("--message-size-max=many", "give a size"),
            ("--message-size-max=1", "1024 bytes or more"),
            ("--handshake-timeout=-1", "give a time"),
            ("--workers=0", "from 1 to 1024"),
            ("--connections-max=0", "from 1"),
            ("--busy-poll=2s", "from 1us to 1s"),
            ("--busy-poll=long", "a number of microseconds"),
            ("--checksums=half", "possible values: full, commit, off"),
            ("--address=nowhere", "is not an address"),
            ("--log-level=warning", "is none of error, warn, info, debug, trace, off"),
            ("--blob-dir=", "give a path"),
            ("--ssl-key-password-file=a --ssl-key-password-file=b", "multiple times"),
        ] {
            let words: Vec<_> = words.split(' ').collect();
            let error = parse(&words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
        assert!(parse(&["--message-size-max=1MiB", "--handshake-timeout=0.5"]).is_ok());
    }

    #[test]
    fn each_flag_has_a_default_that_overrides_a_file() {
        let settings = SETTINGS.iter().flat_map(|group| &group.settings);
        let flags: Vec<_> = settings.filter(|one| !one.description.flag.is_empty()).collect();
        assert!(flags.len() > 5);
        for setting in flags {
            let Setting { description, .. } = setting;
            let default = setting.default_shown().unwrap();
            assert_ne!(default, description.flag, "{}", description.option);
            assert_eq!(setting.check(&default.into()), Ok(()), "{}", description.option);
        }
    }

    #[test]
    fn an_option_for_one_storage_is_refused_for_several() {
        let mut configuration = configuration(&[]);
        configuration.storages.push(StorageOptions::new("2", StorageKind::Memory));
        let error = parse(&["--blob-dir=a"]).unwrap().apply(&mut configuration).unwrap_err();
        assert!(error.starts_with("--blob-dir is for one storage, and there are 2"), "{error}");
    }
}
