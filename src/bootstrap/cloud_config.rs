//! The form of a cloud-config document: data, serialised, never quoted by hand. What is in it: `super`.
//!
//! Keys and their meaning: <https://cloudinit.readthedocs.io/en/latest/reference/modules.html>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_saphyr::LitString;

/// The line by which cloud-init knows the format.
pub(super) const FIRST_LINE: &str = "#cloud-config\n";

/// A document.
#[derive(Serialize)]
pub(super) struct CloudConfig {
    pub(super) write_files: Vec<File>,
    /// Commands in order, each as its words; no shell reads them.
    pub(super) runcmd: Vec<Vec<&'static str>>,
}

/// A file that cloud-init writes.
#[derive(Serialize)]
pub(super) struct File {
    path: &'static str,
    owner: &'static str,
    permissions: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    content: LitString,
}

impl File {
    /// A file of root's. `permissions` in octal, as text: a number would be read as decimal.
    ///
    /// The content is readable where a YAML block can hold it unchanged, and in base64 where not.
    pub(super) fn new(path: &'static str, permissions: &'static str, content: String) -> Self {
        let (encoding, content) =
            if fits_block(&content) { (None, content) } else { (Some("b64"), STANDARD.encode(content)) };
        Self { path, owner: "root:root", permissions, encoding, content: LitString(content) }
    }
}

/// Whether readers of YAML 1.1 (cloud-init's) and 1.2 give back exactly this text from a literal block: no line begins
/// with white space, which would be taken for indentation, and nothing is a line break to one of them only, or
/// forbidden (<https://yaml.org/spec/1.1/#id868524>).
fn fits_block(text: &str) -> bool {
    let plain = |letter: char| {
        matches!(letter, '\n' | '\t' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{1_0000}'..)
            && !matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    !text.starts_with(char::is_whitespace) && text.ends_with('\n') && text.chars().all(plain)
}
