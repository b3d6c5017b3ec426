//! Errors of Lua as texts.

use mlua::Error;

use crate::fail::Fail;

/// The text of an error, without where in our code it came from.
pub(super) fn text_of(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } => message.clone(),
        Error::RuntimeError(message) => {
            message.split("\nstack traceback:").next().unwrap_or_default().to_owned()
        }
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => text_of(cause),
        Error::MemoryError(_) => "not enough memory".to_owned(),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// An error of Lua that no script has made.
pub(super) fn internal(error: Error) -> Fail {
    Fail::text(format!("ERR Lua failed: {}", text_of(&error)))
}
