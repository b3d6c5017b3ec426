//! The text of an error with its causes.

/// An error and its causes on one line. A cause that is in the text already is left out: many
/// errors of libraries have the text of their cause.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use zodium_tools::ToolError;

    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let error = ToolError::Output(io::Error::other("no space"));
        let error = anyhow::Error::from(error).context("dump");
        assert_eq!(in_words(&error), "dump: cannot write the output: no space");
    }
}
