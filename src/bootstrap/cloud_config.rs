//! The form of a cloud-config document: data, serialised, never quoted by hand. What is in it: `super`.
//!
//! Keys and their meaning: <https://cloudinit.readthedocs.io/en/latest/reference/modules.html>.

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
    /// A block that people can read; the serialiser quotes and escapes what a block can't hold, for readers of
    /// YAML 1.1 (cloud-init's) too.
    content: LitString,
}

impl File {
    /// A file of root's. `permissions` in octal, as text: a number would be read as decimal.
    pub(super) fn new(path: &'static str, permissions: &'static str, content: String) -> Self {
        Self { path, owner: "root:root", permissions, content: LitString(content) }
    }
}
