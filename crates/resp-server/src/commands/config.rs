//! `CONFIG`: reading and changing settings.

use super::introspection::help;
use crate::call::Call;
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::glob;
use crate::settings::Refusal;

pub(super) fn config_get(call: &mut Call) -> Outcome {
    let patterns: Vec<&[u8]> = call.arguments.from(2).iter().collect();
    let fits =
        |name: &str| patterns.iter().any(|pattern| glob::fits_any_case(pattern, name.as_bytes()));
    let found = call.server.settings.fitting(fits);
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.text(name);
        call.reply.text(&value);
    }
    Ok(())
}

pub(super) fn config_set(call: &mut Call) -> Outcome {
    if !call.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let words = call.arguments.from(2).iter();
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let wishes: Vec<_> = words.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    call.server.settings.set_all(&wishes).map_err(|(number, refusal)| {
        let name = wishes[number].0;
        let reason = match refusal {
            Refusal::Unknown => {
                return Fail::text(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                ));
            }
            Refusal::Twice => "duplicate parameter".to_owned(),
            Refusal::Because(reason) => reason,
        };
        Fail::text(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        ))
    })?;
    call.server.follow_settings();
    call.hold.uses = call.server.keyspace.uses();
    call.reply.ok();
    Ok(())
}

pub(super) fn config_resetstat(call: &mut Call) -> Outcome {
    call.server.statistics.reset();
    call.reply.ok();
    Ok(())
}

pub(super) fn config_rewrite(call: &mut Call) -> Outcome {
    Err(match &call.server.config_file {
        Some(path) => Fail::text(format!(
            "ERR This server does not change its configuration file: write it to {}",
            path.display()
        )),
        None => Fail::fixed("ERR The server is running without a config file"),
    })
}

pub(super) fn config_help(call: &mut Call) -> Outcome {
    help(
        call,
        "CONFIG",
        &[
            (
                "GET <pattern>",
                "Return parameters matching the glob-like <pattern> and their values.",
            ),
            ("SET <directive> <value>", "Set the configuration <directive> to <value>."),
            ("RESETSTAT", "Reset statistics reported by the INFO command."),
            ("REWRITE", "Rewrite the configuration file. Refused here: it stays as it is."),
        ],
    );
    Ok(())
}
