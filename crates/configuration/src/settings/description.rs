//! What an entry says of its setting besides the values: its names, its help, and its sources.

/// A setting in words. Texts that are empty say nothing.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name in TOML.
    pub key: &'static str,
    /// Its name in `zeo.conf`.
    pub(crate) zeo_conf: &'static str,
    /// What takes its place in `zeo.conf`, if that is no setting; for the documentation.
    pub(crate) elsewhere: &'static str,
    /// What it is for: lines of a documentation comment.
    pub(crate) help: &'static str,
    /// What applies without a value, in place of a default.
    pub(crate) otherwise: &'static str,
    pub(crate) is_required: bool,
    /// Whether it is written as TOML also if it has its default.
    pub(crate) is_always_written: bool,
    /// The option of the command line that overrides it, without hyphens.
    pub option: &'static str,
    /// The letter of the option.
    pub short: Option<char>,
    /// Another name of the option, for compatibility.
    pub alias: Option<&'static str>,
    /// The name of the option's value in the help.
    pub value: &'static str,
    /// The value of the setting, if the option is a flag and has no value of its own. Not the
    /// default: that is what the environment means by 0.
    pub flag: &'static str,
    /// The help of the option, if it does not mean what the setting means.
    pub(crate) option_help: &'static str,
    /// The environment variable that replaces the option.
    pub env: &'static str,
    /// Separates several values in one argument or variable.
    pub separator: Option<char>,
    /// The heading of the option in the help, if it is not that of its group.
    pub(crate) heading: &'static str,
    /// Whether the option cannot apply to several storages.
    pub is_for_one_storage: bool,
}

impl Description {
    /// A description that says nothing; entries say what differs.
    pub(crate) const NONE: Description = Description {
        key: "",
        zeo_conf: "",
        elsewhere: "",
        help: "",
        otherwise: "",
        is_required: false,
        is_always_written: false,
        option: "",
        short: None,
        alias: None,
        value: "",
        flag: "",
        option_help: "",
        env: "",
        separator: None,
        heading: "",
        is_for_one_storage: false,
    };

    /// Its help in paragraphs; the first one is a line.
    pub(crate) fn paragraphs(&self) -> Vec<String> {
        paragraphs(self.help)
    }

    /// The help of its option in paragraphs; the first one is a line.
    #[must_use]
    pub fn option_paragraphs(&self) -> Vec<String> {
        if self.option_help.is_empty() { self.paragraphs() } else { paragraphs(self.option_help) }
    }
}

/// The paragraphs of a documentation comment, each without line ends.
fn paragraphs(help: &str) -> Vec<String> {
    let lines: Vec<_> = help.lines().map(str::trim).collect();
    let paragraphs = lines.split(|line| line.is_empty());
    paragraphs.filter(|lines| !lines.is_empty()).map(|lines| lines.join(" ")).collect()
}
