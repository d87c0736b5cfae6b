//! Secrets, from a variable or from the file that `…_FILE` names. Reads those files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::problems::shown;
use super::read::{Reader, control_character};
use super::registry::{Kind, Preset, Variable};

/// No secret is longer; whatever else the name points at (a disk, `/dev/zero`) is not read to its end.
const LONGEST_FILE: u64 = 64 * 1024;

/// The secret, `None` if neither is set or after a problem; one that is required and missing is a problem.
pub fn secret(
    reader: &mut Reader<'_>,
    variable: &'static Variable,
    value: Option<SecretString>,
    file: Option<String>,
) -> Option<SecretString> {
    let name = reader.name(variable);
    let file_variable = format!("{}_FILE", variable.name);
    let file_name = reader.layer.set_as(&file_variable).to_owned();
    let (secret, source) = match (value, file) {
        (Some(_), Some(_)) => {
            reader.problems.add(name, None, format!("is set, and so is `{file_name}`: set one of the two"));
            return None;
        }
        (Some(value), None) => (value, name),
        (None, Some(path)) => match read_file(Path::new(&path)) {
            Ok(secret) => (secret, file_name),
            Err(message) => {
                reader.problems.add(file_name.clone(), shown_path(&file_name, &path), message);
                return None;
            }
        },
        (None, None) => {
            if variable.preset == Preset::Required {
                reader.problems.missing(variable, reader.pool);
            }
            return None;
        }
    };
    match complaint(secret.expose_secret()) {
        Some(message) => {
            reader.problems.add(source, None, message);
            None
        }
        None => Some(secret),
    }
}

/// A path, unless it looks like a secret that was set in place of a path.
fn shown_path(name: &str, path: &str) -> Option<String> {
    let is_path = path.starts_with('/') || path.starts_with("./") || path.starts_with("../");
    // The name of a file's variable is that of its secret, so it is not asked about.
    if is_path { shown(name.split('_').next().unwrap_or_default(), Kind::Text, path) } else { None }
}

fn read_file(path: &Path) -> Result<SecretString, String> {
    const ACCEPTED: &str = "must be the path of a file that holds the secret";
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|cause| format!("{ACCEPTED}; reading it says: {cause}"))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(format!("{ACCEPTED}, in at most 64 KiB; this one is longer"));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| format!("{ACCEPTED}, as UTF-8 text; this one is something else"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() { Err(format!("{ACCEPTED}; this one is empty")) } else { Ok(SecretString::from(text)) }
}

/// A secret that goes into an HTTP header.
pub fn token(
    reader: &mut Reader<'_>,
    variable: &'static Variable,
    value: Option<SecretString>,
    file: Option<String>,
) -> Option<SecretString> {
    let token = secret(reader, variable, value, file)?;
    if token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(token);
    }
    let file_variable = format!("{}_FILE", variable.name);
    let source = if reader.layer.has(&file_variable) { file_variable.as_str() } else { variable.name };
    let source = reader.layer.set_as(source).to_owned();
    reader.problems.add(
        source,
        None,
        "must be letters, digits and signs in one word; a token has no spaces or accents",
    );
    None
}

fn complaint(secret: &str) -> Option<String> {
    if secret.trim() != secret || secret.is_empty() {
        return Some("has spaces or line breaks at its beginning or end: remove them".to_owned());
    }
    control_character(secret)
}
