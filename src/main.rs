//! The program; everything is in the library.

use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn main() -> ExitCode {
    // Names and values that are not UTF-8 are shown as well as they can be, and refused with the rest.
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    picus::cli::main(variables.collect())
}
